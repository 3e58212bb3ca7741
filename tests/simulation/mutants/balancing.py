"""Bugs in balancing replicas and leaders, in plans, in feature levels and in limits."""

from __future__ import annotations

from chaos.simulator.levels import BROKERS_BALANCING
from tests.helpers.planted_bugs import Edit, Mutant

PLANNING = "tests/unit/partitions/metadata/test_balancing.py"
PLANS = "tests/unit/partitions/metadata/test_plans.py"
BALANCER = "tests/unit/partitions/metadata/test_balancer.py"
FEATURES = "tests/unit/partitions/metadata/test_features.py"
LIMITS = "tests/unit/partitions/metadata/test_planner.py"
SCENARIOS = "tests/scenarios/partitions/test_balancing.py"

BALANCING = (
    Mutant(
        "brokers are balanced without a look at racks",
        "partitions.metadata.balancing:_Rows._may_enter",
        "racks[rack] <= racks[self._racks[giver]]",
        "True",
        script=PLANNING,
    ),
    Mutant(
        "two replicas of a partition move to one broker",
        "partitions.metadata.balancing:_Rows.movable",
        "if taker not in self._rows[key]",
        "if True",
        script=PLANNING,
    ),
    Mutant(
        "replicas that share a rack stay there",
        "partitions.metadata.balancing:_Rows.spread_over_racks",
        "if racks[self._racks[taker]] < racks[self._racks[giver]]:",
        "if False:",
        script=PLANNING,
    ),
    Mutant(
        "leaders are evened with neighbours only",
        "partitions.metadata.balancing:_Rows._path",
        "queue.append(taker)",
        "pass",
        script=PLANNING,
    ),
    Mutant(
        "leaders move rather than followers",
        "partitions.metadata.balancing:_Rows._cost",
        "self._rows[key][0] == giver",
        "self._rows[key][0] != giver",
        script=PLANNING,
    ),
    Mutant(
        "the largest replicas move first",
        "partitions.metadata.balancing:_Rows._cost",
        "self.size_of(key), key",
        "-self.size_of(key), key",
        script=PLANNING,
    ),
    Mutant(
        "bytes are balanced however little they differ",
        "partitions.metadata.balancing:_Rows.exchange",
        "max(bound * sum(total.values()) / len(total), apart_min)",
        "0.0",
        script=PLANNING,
    ),
    Mutant(
        "a plan with fewer replicas is carried out",
        "partitions.metadata.plans:check_plan",
        "len(move.target) != len(move.replicas)",
        "False",
        script=PLANS,
    ),
    Mutant(
        "a plan is carried out although a partition has changed and changed back",
        "partitions.metadata.plans:_check_current",
        " or partition.version > made_at",
        "",
        script=PLANS,
    ),
    Mutant(
        "a second plan replaces the first",
        "partitions.metadata.machine:_start_plan",
        "if image.plan is not None:",
        "if False:",
        script=PLANS,
    ),
    Mutant(
        "a plan goes on while a broker is missing",
        "partitions.metadata.plans:next_of_plan",
        "if missing_brokers(image, heard):",
        "if False:",
        script=PLANS,
    ),
    Mutant(
        "a plan begins all its moves at once",
        "partitions.metadata.plans:next_of_plan",
        "copies[: max(room, 0)]",
        "copies",
        script=PLANS,
    ),
    Mutant(
        "a plan waits for a move that something else has overtaken",
        "partitions.metadata.plans:state_of",
        "is_possible = partition.replicas == move.replicas and",
        "is_possible = True or",
        script=PLANS,
    ),
    Mutant(
        "a snapshot forgets the plan",
        "partitions.metadata.machine:decode_image",
        "plan=found.plan,",
        "",
        script=PLANS,
    ),
    Mutant(
        "plans are written before all brokers understand them",
        "partitions.metadata.features:check_feature",
        "image.feature_level < level",
        "False",
        script=PLANS,
    ),
    Mutant(
        "a broker below the feature level is let in",
        "partitions.metadata.features:check_broker",
        "level < image.feature_level",
        "False",
        script=FEATURES,
    ),
    Mutant(
        "the level rises while one broker does not have it",
        "partitions.metadata.level_watch:LevelWatch.due",
        "min(await",
        "max(await",
        script=f"{SCENARIOS}::test_the_level_rises_once_the_last_broker_has_it_and_then_older_ones_are_refused",
    ),
    Mutant(
        "brokers are balanced while replicas leave a decommissioned one",
        "partitions.metadata.balancer:_is_healing",
        "bool(leaving) and",
        "False and",
        script=BALANCER,
    ),
    Mutant(
        "a broker that is restarted again and again gets replicas",
        "partitions.metadata.balancer:Balancer.is_plan_due",
        "and image.brokers is self._brokers",
        "",
        script=BALANCER,
    ),
    Mutant(
        "leaderships do not return",
        "partitions.reassignment.preferred_leaders:PreferredLeaders._look",
        "replica.group.transfer_leadership(preferred)",
        "pass",
        script=f"{SCENARIOS}::test_leaderships_return_to_a_broker_that_was_away",
    ),
    Mutant(
        "leaderships return at once",
        "partitions.reassignment.preferred_leaders:PreferredLeaders._look",
        "now - self._since[group] >= patience_s",
        "True",
        script=f"{SCENARIOS}::test_leaderships_return_to_a_broker_that_was_away",
    ),
    Mutant(
        "a broker takes more replicas than its limit",
        "partitions.metadata.planner:_checked",
        "most > limits.replicas_per_broker_max",
        "False",
        script=LIMITS,
    ),
    Mutant(
        "a cluster takes more partitions than its limit",
        "partitions.metadata.planner:_check_wanted",
        "before + partitions > limits.partitions_max",
        "False",
        script=LIMITS,
    ),
    Mutant(
        "a move in a plan loses a voter",
        "partitions.metadata.balancing:_Rows.moves",
        "self._before[key], tuple(self._rows[key])",
        "self._before[key], tuple(self._rows[key][:2])",
        more=(
            Edit("partitions.metadata.plans:check_plan", "len(move.target) != len(move.replicas)", "False"),
        ),
        level=BROKERS_BALANCING,
    ),
    Mutant(
        "no plan is made without an administrator",
        "partitions.metadata.balancer:Balancer.is_plan_due",
        "return not is_moving(image) and not _is_healing(image, view)",
        "return False",
        level=BROKERS_BALANCING,
    ),
    Mutant(
        "a plan never ends",
        "partitions.metadata.plans:next_of_plan",
        "return [EndPlan(image.plan.version)]",
        "return []",
        level=BROKERS_BALANCING,
    ),
)
