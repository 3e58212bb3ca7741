"""Bugs in what keeps incarnations apart: requests in doubt, old metadata, folders that are given up."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit, Mutant

INCARNATIONS = "tests/scenarios/partitions/test_incarnations.py"
COMMANDS = "tests/unit/partitions/metadata/test_replica_commands.py"
MACHINE = "tests/unit/partitions/metadata/test_machine.py"
SERVICE = "tests/scenarios/partitions/test_metadata_service.py"
APPLIED = "tests/scenarios/partitions/test_applied_metadata.py"
TRASH = "tests/unit/partitions/test_trash.py"
OPENINGS = "tests/unit/partitions/test_opener.py"
SWEEP = "tests/scenarios/partitions/test_sweep.py"

CONTROLLER = (
    Mutant(
        "a creation repeated after the deletion makes the topic again",
        "partitions.metadata.machine:_create_topic",
        "if command.creation_id in image.deleted:",
        "if False:",
        script=INCARNATIONS,
    ),
    Mutant(
        "a repeated creation reuses the topic id",
        "partitions.metadata.machine:_new_topic_id",
        'f"{image.bootstrap_id} {version} {creation_id}"',
        "creation_id",
        script=INCARNATIONS,
    ),
    Mutant(
        "a request for a topic affects a later one",
        "partitions.metadata.machine:_find_topic",
        "topic is None or topic_id not in (None, topic.topic_id)",
        "topic is None",
        more=(
            Edit(
                "partitions.metadata.move_planner:find_topic",
                "topic_id not in (None, topic.topic_id)",
                "False",
            ),
        ),
        script=INCARNATIONS,
    ),
    Mutant(
        "a deletion names no topic id",
        "partitions.metadata.service:Controller._ask_about",
        "structs.replace(request, topic_id=topic.topic_id)",
        "request",
        script=INCARNATIONS,
    ),
    Mutant(
        "a report of an earlier target ends a later one",
        "partitions.metadata.replica_commands:replicas_changed",
        " and command.target_version == partition.version",
        "",
        script=COMMANDS,
    ),
    Mutant(
        "a repeated report reorders the replicas",
        "partitions.metadata.replica_commands:replicas_changed",
        "if not arrived and command.membership_index == partition.membership_index:",
        "if False:",
        script=COMMANDS,
    ),
    Mutant(
        "a late registration replaces a later process",
        "partitions.metadata.broker_commands:register",
        "before.incarnation not in (command.incarnation, command.replaces)",
        "False",
        script=INCARNATIONS,
    ),
    Mutant(
        "a broker registers as if nobody had before",
        "partitions.metadata.registration:Registration._request",
        '"" if shown is None else shown.incarnation',
        '""',
    ),
    Mutant(
        "an uncertain attempt counts as never made",
        "raftlog.node.leader_search:LeaderSearch.ask",
        "is_in_doubt = True",
        "pass",
        script=INCARNATIONS,
    ),
    Mutant(
        "a change in replication is reported as not begun",
        "partitions.metadata.active:ActiveController.handle",
        "if proposal is None:",
        "if True:",
        script=INCARNATIONS,
    ),
    Mutant(
        "two requests are planned at once",
        "partitions.metadata.active:ActiveController.handle",
        ", self._planning:",
        ":",
        script=SERVICE,
    ),
    Mutant(
        "a new controller plans before it knows what the last one did",
        "partitions.metadata.active:ActiveController.handle",
        "await self._group.ready()",
        "pass",
        equivalent="a plan is judged again where it is applied; at worst a placement is uneven",
    ),
    Mutant(
        "metadata counts as confirmed without a request",
        "partitions.metadata.service:Controller.current_image",
        "await self._current(timeout_ms)",
        "pass",
    ),
    Mutant(
        "a broker's metadata goes back",
        "partitions.metadata.shown_image:ShownImage.changed",
        "image.version < self.image.version",
        "False",
        script=SERVICE,
    ),
    Mutant(
        "fencing an earlier process affects a later one",
        "partitions.metadata.broker_commands:fence",
        "incarnation != broker.incarnation",
        "False",
        script=MACHINE,
    ),
    Mutant(
        "a group id is used again after a recovery",
        "partitions.metadata.replica_commands:recovered_unsafely",
        "next_group_id=GroupId(image.next_group_id + 1)",
        "next_group_id=max(image.next_group_id, recovered.group_id)",
        script=COMMANDS,
    ),
    Mutant(
        "a possibly deposed controller refuses by old metadata",
        "partitions.metadata.active:ActiveController._plan",
        "await self._group.confirm_read()",
        "await self._group.ready()",
        script=SERVICE,
    ),
    Mutant(
        "the current version is read before leadership is confirmed",
        "partitions.metadata.active:ActiveController._current_version",
        "    try:\n",
        "    version = self._machine.image.version\n    try:\n",
        more=(
            Edit(
                "partitions.metadata.active:ActiveController._current_version",
                "return Answer(self._machine.image.version, ",
                "return Answer(version, ",
            ),
        ),
        script="tests/unit/partitions/metadata/test_active.py",
    ),
    Mutant(
        "a broker that is drained takes replicas again once it starts again",
        "partitions.metadata.broker_commands:register",
        "draining=before is not None and before.draining,",
        "",
        script=MACHINE,
    ),
    Mutant(
        "a move that is cancelled at once never ends",
        "partitions.metadata.replica_commands:replicas_changed",
        "command.membership_index < partition.membership_index:",
        "command.membership_index <= partition.membership_index:",
        script=COMMANDS,
    ),
    Mutant(
        "a silent broker is unfenced repeatedly",
        "partitions.metadata.liveness:decide",
        "elif not broker.alive and broker.incarnation and broker_id in heard:",
        "elif not broker.alive:",
        script="tests/unit/partitions/metadata/test_liveness.py",
    ),
    Mutant(
        "a snapshot of the metadata forgets which creations were deleted",
        "partitions.metadata.machine:decode_image",
        "deleted=found.deleted,",
        "",
        script=MACHINE,
    ),
)

GIVEN_UP = (
    Mutant(
        "folders are deleted by metadata older than applied_metadata",
        "partitions.hosting.applied_metadata:AppliedMetadata.objection",
        "known.was_lost or now.version < known.version",
        "known.was_lost",
        script=APPLIED,
    ),
    Mutant(
        "lost metadata is trusted once its version has grown",
        "partitions.hosting.applied_metadata:AppliedMetadata.objection",
        "was_lost=True",
        "was_lost=False",
        script=APPLIED,
    ),
    Mutant(
        "folders are deleted by other metadata",
        "partitions.hosting.applied_metadata:AppliedMetadata.objection",
        "known is not None and known.bootstrap_id != now.bootstrap_id",
        "False",
        script=APPLIED,
    ),
    Mutant(
        "applied_metadata is not written",
        "partitions.hosting.applied_metadata:AppliedMetadata._keep",
        "twin_file.keep(self._filesystem, self._data_directory, APPLIED_FILE, applied)",
        "pass",
        script=APPLIED,
    ),
    Mutant(
        "folders are deleted before the metadata is confirmed",
        "partitions.hosting.directories:Folders.may_give_up",
        'return self._objection == ""',
        "return not self._objection",
        script=APPLIED,
    ),
    Mutant(
        "folders are deleted without the trash",
        "partitions.hosting.trash:Trash.put",
        "self._filesystem.rename(folder, target)",
        "self._filesystem.remove_tree(folder)",
        script=TRASH,
    ),
    Mutant(
        "a delay begins again with every start",
        "partitions.hosting.trash:Trash.look",
        "self._delay_ms - (wall_ms - came_ms)",
        "self._delay_ms",
        script=TRASH,
    ),
    Mutant(
        "a wall clock that is set empties the trash",
        "partitions.hosting.trash:Trash.look",
        "if self._due[name] <= now_s]",
        "if wall_ms - entries[name] >= self._delay_ms]",
        script=TRASH,
    ),
    Mutant(
        "the newest trash entry is deleted first on a full disk",
        "partitions.hosting.trash:Trash.look",
        "list(entries)[:1]",
        "list(entries)[-1:]",
        script=TRASH,
    ),
    Mutant(
        "a log is discarded by unconfirmed metadata",
        "partitions.hosting.opener:ReplicaOpener._put_away",
        "if not may_give_up:",
        "if False:",
        script=OPENINGS,
    ),
    Mutant(
        "a deleted topic's name opens the old log",
        "partitions.hosting.replica_manager:ReplicaManager._release_gone",
        "topic is None or topic.topic_id != hosted.topic.topic_id",
        "topic is None",
        script=INCARNATIONS,
    ),
    Mutant(
        "lost metadata is trusted once its version has passed the old one",
        "partitions.hosting.applied_metadata:AppliedMetadata.objection",
        "(known.was_lost or now.version < known.version)",
        "now.version < known.version",
        script=APPLIED,
    ),
    Mutant(
        "a folder that could not be moved is skipped by later cleanups",
        "partitions.hosting.directories:Folders.sweep",
        "    self.is_swept = self.may_give_up\n"
        "    for name in gone:\n"
        '        await self.give_up(f"{self._data_directory}/{name}", "deleted")\n',
        "    for name in gone:\n"
        '        await self.give_up(f"{self._data_directory}/{name}", "deleted")\n'
        "    self.is_swept = self.may_give_up\n",
        script=SWEEP,
    ),
    Mutant(
        "a folder in the trash comes back with a power loss",
        "partitions.hosting.trash:Trash.put",
        'self._filesystem.sync_directory(folder.rpartition("/")[0])',
        "pass",
        script=TRASH,
    ),
)
