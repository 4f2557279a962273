"""The dashboard's pages, a module each: they draw results with Streamlit and compute no figure."""
