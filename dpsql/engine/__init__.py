"""The one journey of a request: find, check, pay, go through a door, store, answer.

Job: what answers some statements: ``matrix``, ``clip``, ``clipped_workload``, ``learn``,
``discover``; ``statements`` says which.
Step: the half of a job up to the store; a threshold and its answers are two.
Price: what a step is charged, and for what.
Planner: all that is known without the data; what jobs are given.
Engine: a planner with a ledger and the three doors of the membrane.
Terms: the settings of a session. Explanation: a forecast, as rows.
Charges: debits, and whether what they paid for is stored. Turn: who measures while others wait.
GrantedFiles: the files that SQL may name.
"""
