"""What every backend owes a session's outputs: commands find the folder, and what they leave there is a file of the session when the turn's idle comes."""


def published(client, session):
    """Its published files by name."""
    return {f["filename"]: f for f in client.get(f"/v1/files?scope_id={session}")["data"]}


def check_outputs(case, client, say, folder="/mnt/session/outputs"):
    """say(session, command): a whole turn of the session; it is over when its idle is there. folder: as its commands know it."""
    session = client.new_session()["id"]
    say(session, f"cd {folder} && mkdir deep && printf 'one,\\303\\251\\n' > deep/a.csv && head -c 300000 /dev/zero > big.bin")
    first = published(client, session)
    case.assertEqual({"a.csv": 7, "big.bin": 300000}, {name: f["size_bytes"] for name, f in first.items()})
    status, _, body = client.raw("GET", f"/v1/files/{first['a.csv']['id']}/content")
    case.assertEqual((200, "one,\u00e9\n".encode()), (status, body))
    say(session, f"cat {folder}/deep/a.csv")
    case.assertEqual(first, published(client, session), "a second idle publishes nothing again")
    say(session, f"cd; cd {folder} && printf 'two,\\303\\251\\n' > deep/a.csv && rm big.bin")
    (after,) = published(client, session).values()
    case.assertNotEqual(first["a.csv"]["id"], after["id"])
    case.assertEqual("two,\u00e9\n".encode(), client.raw("GET", f"/v1/files/{after['id']}/content")[2])
    case.assertEqual([], [e for e in client.events(session) if e["type"] == "session.error"])
    client.delete(f"/v1/sessions/{session}")
