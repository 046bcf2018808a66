from holdfast.runtime.caches import drop_oldest


def test_what_was_put_in_last_stays() -> None:
    kept = {number: str(number) for number in range(10)}
    del kept[3]
    kept[3] = "again"
    drop_oldest(kept, most=4)
    assert kept == {7: "7", 8: "8", 9: "9", 3: "again"}
    drop_oldest(kept, most=4)
    assert len(kept) == 4
    drop_oldest(kept, most=0)
    assert kept == {}


def test_some_room_is_made_at_once() -> None:
    kept = dict.fromkeys(range(100))
    drop_oldest(kept, most=100)
    assert [*kept] == [*range(100)]
    kept[100] = None
    drop_oldest(kept, most=100)
    assert [*kept] == [*range(11, 101)]
