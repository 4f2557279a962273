"""The dashboard's charts, by Altair: it comes with Streamlit, and its specifications are data."""
