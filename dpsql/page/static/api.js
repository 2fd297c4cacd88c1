// Requests to the server. Whatever goes wrong is a Failure, with what the server said of it.

export class Failure extends Error {
  constructor(status, told) {
    super(told.message);
    this.status = status;
    this.told = told;
  }
}

// Where the catalog of this page is: the first of a server has no path.
export const base = location.pathname.replace(/\/[^/]*$/, "");

async function send(path, options) {
  let reply, told;
  try {
    reply = await fetch(base + path, { credentials: "same-origin", cache: "no-store", ...options });
    told = await reply.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, { code: "E_SERVER", message: "the server cannot be reached" });
  }
  if (reply.status === 401 && path !== "/api/enter") window.dispatchEvent(new Event("signed-out"));
  if (told.error) throw new Failure(reply.status, told.error);
  return told;
}

export function get(path) {
  return send(path, {});
}

export function post(path, members = {}, signal = undefined) {
  const headers = { "Content-Type": "application/json", "X-Dpsql": "page" };
  return send(path, { method: "POST", headers, body: JSON.stringify(members), signal });
}
