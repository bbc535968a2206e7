"""What the tests stand on: a private PostgreSQL, processes that never outlive the test, vendors.

    cluster.py  Cluster: PostgreSQL in a temporary directory
    procs.py    Sandbox, Worker, wait_until
    vendor.py   Vendor: an HTTP vendor whose every move a test decides
    clean.py    nothing is left behind, whichever way the process ends
"""
