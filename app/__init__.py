"""The application around the backends: settings, worker processes, chats, metrics, HTTP routes and the page."""
