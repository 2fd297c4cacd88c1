"""Public rows beside private ones: joins, look-ups and filters by what everybody may know."""
