"""The dashboard in a checkout: ``streamlit run app.py``, or ``streamlit run app.py -- DIR``."""

from tracekit.app.page import main

main()
