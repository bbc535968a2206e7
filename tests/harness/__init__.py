"""What the tests stand on: a private PostgreSQL, processes that never outlive the test, vendors.

    cluster.py  Cluster: PostgreSQL in a temporary directory
    procs.py    Sandbox, Worker, migrate, wait_until
    torn.py     TornServer: an HTTP vendor whose every move a test decides
    clean.py    nothing is left behind, whichever way the process ends
"""
