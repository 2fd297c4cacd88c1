"""Guesses from a column's name: whether it identifies somebody, and what its values are.

A guess is for the curator to confirm, in a drafted catalog; nothing else depends on it.
"""

from __future__ import annotations

import re

IDENTIFIERS = "id ids uuid guid ssn email iban key"
PERSONS = (
    "applicant author borrower buyer child citizen claimant client customer donor driver employee"
    " family guest household member owner participant passenger patient person player pupil"
    " resident respondent rider student subject subscriber taxpayer tenant user visitor voter"
)
"""Words for whom a guarantee may protect, as names of columns use them."""
LAST_WORDS = {
    "timestamp": "at timestamp datetime ts",
    "date": "date day dob birthday birthdate on since until",
    "integer": "age year years month months weeks days hours minutes count number num qty quantity"
    " children persons people rooms visits",
    "float": "price cost amount salary income wage fee balance total rate score weight height"
    " temperature distance share percent value tax",
}
"""Type of the values of a column, by the last word of its name."""
FIRST_WORDS = {"boolean": "is has was had can", "integer": "num n count", "date": "date"}


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case.

    >>> words_of("PatientID"), words_of("date_of_birth"), words_of("hoursPerWeek2")
    (['patient', 'id'], ['date', 'of', 'birth'], ['hours', 'per', 'week', '2'])
    """
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+", name)
    return [word.lower() for word in found]


def is_identifier(name: str) -> bool:
    """True if a column seems to identify a person or a thing.

    >>> is_identifier("patientId"), is_identifier("paid"), is_identifier("id")
    (True, False, True)
    """
    return bool(words := words_of(name)) and words[-1] in IDENTIFIERS.split()


def is_person(name: str) -> bool:
    """True if a column seems to say whose a row is.

    >>> [is_person(each) for each in ("customer", "CustomerID", "order_id", "patient_age")]
    [True, True, False, False]
    """
    words = words_of(name)
    return bool(set(words) & set(PERSONS.split())) and (
        is_identifier(name) or words[-1] in PERSONS.split()
    )


def guess_family(name: str) -> str:
    """Return the type family that a name suggests, text where it suggests none.

    >>> [guess_family(each) for each in ("age", "arrived_at", "isMember", "unit price", "ward")]
    ['integer', 'timestamp', 'boolean', 'float', 'text']
    """
    words = words_of(name) or [""]
    for family, known in FIRST_WORDS.items():
        if words[0] in known.split() and len(words) > 1:
            return family
    found = (family for family, known in LAST_WORDS.items() if words[-1] in known.split())
    return next(found, "text")
