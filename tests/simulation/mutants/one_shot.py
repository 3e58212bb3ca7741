"""Bugs in one-shot transactions, and in requests with an idempotency key."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_WORLD = "tests/properties/test_keyed_requests.py"
_UNIT = "tests/unit/transactions/test_keyed_requests.py"
_KEYS = "tests/unit/api/test_idempotency_keys.py"
_EXECUTE = "tests/unit/api/test_execute.py"
_DECISIONS = "transactions.decisions:Decisions."
_KEYED = "transactions.keyed_requests:"
_ONE_SHOTS = "transactions.one_shot:OneShots."


def _mutant(name: str, place: str, text: str, planted: str, script: str = _WORLD) -> Mutant:
    return Mutant(name, place, text, planted, script=script)


ONE_SHOT = (
    _mutant(
        "the answer to a keyed request is stored behind the decision",
        _DECISIONS + "_decide",
        "self._outputs.write(*rows, *beside)",
        "[self._outputs.write(row) for row in (*rows, *beside)]",
    ),
    _mutant(
        "a keyed request is claimed behind the opening of its transaction",
        _DECISIONS + "_put",
        "self._outputs.write((TransactionKey(name), transaction), *beside)",
        "self._outputs.write((TransactionKey(name), transaction))\n"
        "    [self._outputs.write(row) for row in beside]",
        _UNIT,
    ),
    _mutant(
        "a keyed request that is committed is carried out again",
        _KEYED + "held_by",
        "if before is None or (",
        "if before is None or before.answer is not None or (",
    ),
    _mutant(
        "a keyed request that is running is carried out beside itself",
        _KEYED + "held_by",
        "if before.attempt == claim.attempt:",
        "if True:",
        _KEYS,
    ),
    _mutant(
        "a request whose reply was lost is refused by its own record",
        _KEYED + "held_by",
        "if before.attempt == claim.attempt:",
        "if False:",
        _UNIT,
    ),
    _mutant(
        "the answer goes to another request with the same key",
        _KEYED + "held_by",
        "if before.fingerprint != claim.fingerprint:",
        "if False:",
    ),
    _mutant(
        "a repetition is answered before the partitions show the records",
        _KEYED + "waits_for",
        "return name if is_ending else None",
        "return None",
        _UNIT,
    ),
    _mutant(
        "a request whose transaction was aborted stays claimed",
        _KEYED + "decided",
        "if answer is None:\n        return RequestKey(digest), None",
        "if answer is None:\n        return RequestKey(digest), state.requests[digest]",
        _UNIT,
    ),
    _mutant(
        "an abort stores the answer of a commit",
        _DECISIONS + "_decide",
        "stored = answer if abort is None else None",
        "stored = answer or b'?'",
    ),
    _mutant(
        "a keyed request is committed without its answer",
        _KEYED + "check_committable",
        "if bool(found.request) != (answer is not None):",
        "if False:",
        _UNIT,
    ),
    _mutant(
        "the time of a keyed request does not run from its opening",
        _DECISIONS + "_begin",
        "has_begun = bool(ask.partitions or claim)",
        "has_begun = bool(ask.partitions)",
    ),
    _mutant(
        "partitions that are named at the opening do not take part",
        _DECISIONS + "_begin",
        "partitions=tuple(sorted(ask.partitions)),",
        "",
        _UNIT,
    ),
    _mutant(
        "the time of a transaction that is opened with its partitions does not run",
        _DECISIONS + "_begin",
        "has_begun = bool(ask.partitions or claim)",
        "has_begun = bool(claim)",
        _UNIT,
    ),
    _mutant(
        "answers are kept for ever",
        _DECISIONS + "_expire",
        "for row in keyed_requests.expired(self.state, self._wall_ms - self._key_retention_ms):",
        "for row in ():",
        _UNIT,
    ),
    _mutant(
        "answers expire with transactional ids",
        _DECISIONS + "_expire",
        "self._wall_ms - self._key_retention_ms",
        "self._wall_ms - self._id_retention_ms",
        _UNIT,
    ),
    _mutant(
        "the record of a running request expires",
        _KEYED + "expired",
        "if request.changed_ms < oldest_ms and not _is_running(request, state)",
        "if request.changed_ms < oldest_ms",
        _UNIT,
    ),
    _mutant(
        "keys are not counted",
        _KEYED + "check_room",
        "len(state.requests) >= KEYS_MAX or ",
        "",
        _UNIT,
    ),
    _mutant(
        "the bytes of answers are not counted",
        _KEYED + "check_room",
        " or state.answer_bytes >= ANSWERS_BYTES_MAX",
        "",
        _UNIT,
    ),
    _mutant(
        "a snapshot counts the bytes of answers twice",
        "transactions.state:TransactionsState.take",
        "self.answer_bytes -= _answer_bytes(before)",
        "pass",
        _UNIT,
    ),
    _mutant(
        "a failed execution leaves its transaction open",
        _ONE_SHOTS + "_run",
        "except Exception:\n        await self._abort(handle)\n        raise",
        "except Exception:\n        raise",
        _EXECUTE,
    ),
    _mutant(
        "an append in doubt leaves the execution in doubt",
        _ONE_SHOTS + "_run",
        "raise _nothing_visible(error, str(handle)) from error",
        "raise",
        _EXECUTE,
    ),
    _mutant(
        "an execution that was aborted counts as committed",
        _ONE_SHOTS + "_commit",
        "if not ended.is_committed:",
        "if False:",
        "tests/unit/transactions/test_one_shot.py",
    ),
    _mutant(
        "a commit in doubt is reported as aborted",
        _ONE_SHOTS + "_commit",
        "committed=None,",
        "committed=False,",
        "tests/unit/transactions/test_one_shot.py",
    ),
    _mutant(
        "an opening in doubt denies an earlier request with the same key",
        _ONE_SHOTS + "_run",
        "if is_keyed:",
        "if False:",
        "tests/unit/transactions/test_one_shot.py",
    ),
    _mutant(
        "a borrowed id whose outcome is not known is lent again",
        _ONE_SHOTS + "run",
        "except Unknown:\n        raise  # the id is not used again\n    except Exception:",
        "except Exception:",
        "tests/unit/transactions/test_one_shot.py",
    ),
    _mutant(
        "two requests borrow one transactional id",
        _ONE_SHOTS + "_borrow",
        "free.pop() if free",
        "free[-1] if free",
        "tests/unit/transactions/test_one_shot.py",
    ),
    _mutant(
        "every request leaves a transactional id behind",
        _ONE_SHOTS + "_give_back",
        "if name.startswith(RESERVED):",
        "if False:",
        _EXECUTE,
    ),
    _mutant(
        "equal requests with a key ask different coordinators",
        "api.resources.one_shot:run",
        "if claim is None else",
        "if claim is None or True else",
        "tests/unit/transactions/test_one_shot.py",
    ),
    _mutant(
        "a repetition is refused because a topic was deleted meanwhile",
        "api.resources.one_shot:first_answer_or",
        "if claim is not None:",
        "if False:",
        _KEYS,
    ),
    _mutant(
        "the headers of a raw body do not distinguish requests",
        "api.http.idempotency:claim_of",
        "if name.startswith(_OF_RAW_BODY)",
        "if False",
        _KEYS,
    ),
    _mutant(
        "a key is the same in every path",
        "api.http.idempotency:claim_of",
        "_hash((scope, key))",
        "_hash((key,))",
        _KEYS,
    ),
    _mutant(
        "a key is the same in every transactional id of a coordinator",
        "api.resources.execute:execute",
        "scope = call.request.path if name is None else",
        "scope = call.request.path if True else",
        _KEYS,
    ),
    _mutant(
        "the attempt of a request is always the same",
        "api.http.idempotency:claim_of",
        "attempt=rng.getrandbits(62)",
        "attempt=1",
        _KEYS,
    ),
    _mutant(
        "a keyed produce without a quorum is accepted",
        "api.resources.produce_records:produce_records",
        "if acks != QUORUM:",
        "if False:",
        _KEYS,
    ),
    _mutant(
        "an answer that is kept has any number of records",
        "api.resources.produce_records:records_max",
        "count_max if key is None else min(count_max, KEYED_RECORDS_MAX)",
        "count_max",
        _KEYS,
    ),
    _mutant(
        "the records of an execution lose their order in a partition",
        "api.resources.execute:_batches",
        "for number in numbers]",
        "for number in reversed(numbers)]",
        _EXECUTE,
    ),
    _mutant(
        "an execution is written before all of its records are valid",
        "api.resources.execute:_placed",
        "if name not in topics:",
        "if name not in topics and number == 0:",
        _EXECUTE,
    ),
    _mutant(
        "clients open transactional ids of brokers",
        "api.http.producers:own_id",
        "if transactional_id.startswith(RESERVED):",
        "if False:",
        _EXECUTE,
    ),
)
