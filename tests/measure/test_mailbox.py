import torch

from stayfinite.measure.mailbox import Letter, Mailbox


def test_letters_arrive_in_the_order_of_posting_under_their_labels():
    mailbox = Mailbox()
    for i in range(5):
        mailbox.post(f"step {i}", torch.arange(i + 1, dtype=torch.float64))
    assert mailbox.collect() == [Letter(f"step {i}", [float(j) for j in range(i + 1)]) for i in range(5)]


def test_a_letter_is_delivered_once():
    mailbox = Mailbox()
    mailbox.post("a", torch.ones(1))
    assert len(mailbox) == 1
    assert [letter.label for letter in mailbox.collect(wait=True)] == ["a"]
    assert len(mailbox) == 0
    assert mailbox.collect(wait=True) == []


def test_letters_posted_between_two_collections_come_with_the_second():
    mailbox = Mailbox()
    mailbox.post(1, torch.ones(1))
    mailbox.collect()
    mailbox.post(2, torch.ones(1))
    mailbox.post(3, torch.ones(1))
    assert [letter.label for letter in mailbox.collect()] == [2, 3]
