"""Public rows beside private ones, joined, looked up, or as filters."""
