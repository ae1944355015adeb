"""`python -m app` is the `ringside` command."""

if __name__ == "__main__":  # worker processes import this module again, and must not start an app
    from app.cli import main

    main()
