"""The dashboard: serves it on localhost, takes traces from a folder or an upload, and lays out its pages."""
