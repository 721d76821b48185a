"""Rows 60 to 64: files up and down, in the folder and in a store that speaks S3."""
from bench import Result, measured, ratio, row


def objects(b, number):
    """Reference and product of the row."""
    got = measured(b, "objects.py")
    if str(number) not in got:
        raise RuntimeError(f"it needs the S3 server and boto3 beside it: {got['missing']}")
    return got[str(number)]


def speed(number, what, floor, target):
    @row(number)
    def one(b):
        ref, got = objects(b, number)
        yield ratio(number, what, ref, got, " MiB/s", floor, target)


speed(60, "a file up into the folder, synced, of cp and sync", 0.15, 0.5)
speed(61, "the same file down, of cp and sync", 0.7, 1)
speed(62, "a file up into an S3 store, of boto3's ten threads to the same", 0.4, 0.8)
speed(63, "the same file down, of boto3's", 0.7, 1)


@row(64)
def store_memory(b):
    _, got = objects(b, 64)
    yield Result(64, "growth of peak memory in an upload to the S3 store", "", f"{got:.1f} MiB", got, 12, 8, False)
