# Every process that takes a sample imports this module too: what it need not know stays outside.
if __name__ == "__main__":
    from bench.cli import main

    main()
