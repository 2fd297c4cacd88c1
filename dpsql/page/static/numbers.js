// Numbers as people read them: as many digits as the noise leaves meaning to.

export function short(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  if (value !== 0 && (Math.abs(value) >= 1e9 || Math.abs(value) < 1e-4)) return value.toPrecision(3);
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

// Decimals after which nothing is left but noise: two digits of the standard error are kept.
function decimals(error) {
  if (!(error > 0)) return 2;
  return Math.max(0, Math.min(8, 1 - Math.floor(Math.log10(error))));
}

export function told(value, error) {
  if (typeof value !== "number") return short(value);
  const digits = decimals(error);
  if (Math.abs(value) >= 1e12) return value.toPrecision(6);
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// What is told of an error; one that is not worked out is sent as "NaN".
export function spread(error) {
  if (error === "NaN") return "not known";
  if (typeof error !== "number") return short(error);
  return error.toLocaleString("en", { maximumFractionDigits: decimals(error) });
}

export function rough(value) {
  return typeof value === "number" ? short(+value.toPrecision(3)) : short(value);
}

export function plain(value) {
  if (value === null || value === undefined) return "NULL";
  if (typeof value === "number" && !Number.isInteger(value)) return String(+value.toPrecision(10));
  return String(value);
}
