"""From noisy numbers to results: the outer shell, stored releases, models (stages 9 and 10).

``assemble`` makes one ``result`` per statement of the estimates of all parts, ``shell`` runs what
is around them, ``store`` keeps what was published, and ``implied`` finds it again.
"""
