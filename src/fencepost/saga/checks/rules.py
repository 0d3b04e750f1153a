"""What `check` looks for in sagas and durable tasks. The same texts are in the reference."""

from __future__ import annotations

from fencepost.findings import Rule, Severity

ERROR, WARNING = Severity.ERROR, Severity.WARNING

# -- types ---------------------------------------------------------------------------------

MISMATCH = Rule(
    "types.mismatch",
    ERROR,
    "What one place gives can't be read as what the next one takes.",
    "A result is stored as JSON by the type of the step that gives it, and loaded by the type of"
    " the step that takes it. Where that fails, the execution fails.",
    "make the two annotations agree",
)
COMPENSATION = Rule(
    "types.compensation",
    ERROR,
    "A compensation doesn't take what its step gives.",
    "A compensation is given the recorded result of the step that it undoes. One that can't read"
    " it can't undo anything, and parks the execution.",
    "let the compensation take the step's result",
)
NOT_A_LIST = Rule(
    "types.not-a-list",
    ERROR,
    "A fan-out's `over` isn't annotated to return a list of one type.",
    "Each item becomes the input of a child execution; without the items' type nobody can tell"
    " whether the child saga takes them.",
    "annotate `over` to return list[Item]",
)
NOT_STORABLE = Rule(
    "types.not-storable",
    ERROR,
    "Values of a type can't be stored as JSON and read back.",
    "Every input and result goes through the database. What doesn't survive that fails the step"
    " that gives it, or the one that takes it.",
    "use pydantic models, dataclasses or plain JSON types",
)
UNTYPED = Rule(
    "types.untyped",
    WARNING,
    "A place says `Any`, `object` or a bare `list` or `dict` about what it gives.",
    "Nothing can be checked about such a value: whether it can be stored, and whether the next"
    " step takes it, shows when it runs.",
    "name the type",
)

# -- steps and effects ---------------------------------------------------------------------

NEEDS_TRANSACTION = Rule(
    "step.needs-transaction",
    ERROR,
    "A step takes a `TransactionalContext` and isn't declared as transactional.",
    "Only a transactional step is given a session on the ledger's database.",
    "declare it with @step(transactional=True), or take a StepContext",
)
DEADLINE_BELOW_TIMEOUT = Rule(
    "step.deadline-shorter-than-timeout",
    WARNING,
    "A step's deadline, which is for all attempts, is shorter than the time-out of one.",
    "The time-out never comes to bear: the deadline ends the first attempt.",
    "give it a longer deadline or a shorter timeout",
)
UNDO_OF_UNDO = Rule(
    "step.compensated-compensation",
    WARNING,
    "A compensation declares a compensation of its own.",
    "A compensation is never undone, so that one never runs.",
    "remove compensate=... from the compensation",
)
WRONG_STEP = Rule(
    "effect.wrong-step",
    ERROR,
    "A transactional effect in a step that isn't transactional, or another effect in one that is.",
    "A transactional effect is part of the step's transaction. Every other effect is recorded"
    " before its call, which an open transaction would hide.",
    "move the effect to a step of the other kind",
)
UNDECLARED = Rule(
    "effect.undeclared",
    ERROR,
    "The code of a step or task names an effect that it doesn't declare.",
    "To perform an undeclared effect is refused when the step runs. Fences are raised at a"
    " takeover only for effects that are declared. What a function names that the step calls is a"
    " warning.",
    "add it to effects=[...]",
)
TWO_OF_A_NAME = Rule(
    "effect.two-of-a-name",
    ERROR,
    "Two effects have the same name.",
    "A takeover finds the sink whose fence it has to raise by the effect's recorded name.",
    "give one of them @effect(name=...)",
)
NOT_UNDOABLE = Rule(
    "effect.not-undoable",
    WARNING,
    "An effect that stays although what comes after it may fail: its step has no compensation.",
    "When a later step fails, the saga is undone, but for this. Before a pivot it is an error:"
    " there the saga has said where the way back ends.",
    "add compensate=..., or compensate=STAYS if it is meant to stay",
)

# -- structure -----------------------------------------------------------------------------

DUPLICATE_NAME = Rule(
    "name.duplicate",
    ERROR,
    "Two places of a saga have the same name.",
    "A step key is made of the execution and the step's name. Only the same step on paths that"
    " exclude each other, or again in an error branch, may have the same name.",
    "give one of them @step(name=...) or name=...",
)
EMPTY = Rule(
    "saga.empty",
    ERROR,
    "A saga has no steps.",
    "An execution of it would have nothing to do.",
    "add a step",
)
EMPTY_PATH = Rule(
    "path.empty",
    ERROR,
    "A loop's body has no steps.",
    "Every pass would give what it was given. (A branch's path may be empty: it goes straight on.)",
    "add a step to the body",
)
TERMINAL_NOT_LAST = Rule(
    "terminal.not-last",
    ERROR,
    "A step that ends the execution is on a path, or others come after it.",
    "What comes after it would never run.",
    "make it the last step of the saga or error branch",
)
PATH_IGNORES = Rule(
    "path.has-branches",
    ERROR,
    "A saga that is used as a path has error branches, a deadline or a queue.",
    "A path's steps run in the execution that comes to it: its own branches, deadline and queue"
    " would be ignored.",
    "declare them on the saga around it, or run the path with child(...)",
)
CHILD_CONTINUES = Rule(
    "child.continues-as-new",
    ERROR,
    "A child saga may continue as new.",
    "Its parent waits for that very execution, and counts one that was continued as failed.",
    "use a loop in the child, or start the line from a step",
)

# -- error branches ------------------------------------------------------------------------

UNREACHABLE = Rule(
    "branch.unreachable",
    ERROR,
    "An error branch stands after one that takes its errors.",
    "Of several branches that match, the first is taken.",
    "put the branch of the base class last",
)
LEAVES_UNDO_OUT = Rule(
    "branch.leaves-undo-out",
    ERROR,
    "One error branch declares an undo that another leaves out, and the step doesn't have it.",
    "On the other error what the step did stays, though the saga says how to undo it.",
    "declare the compensation on the step",
)
UNDO_CONFLICT = Rule(
    "branch.undo-conflict",
    ERROR,
    "An error branch declares another undo for a step than the step, or the same branch, does.",
    "A step is undone once, and by its own compensation if it has one: the other would be ignored.",
    "declare one of them",
)
UNKNOWN_STEP = Rule(
    "branch.unknown-step",
    ERROR,
    "An error branch undoes a step that the saga doesn't have.",
    "It would never run; what was meant isn't undone.",
    "name the step that the saga runs",
)

# -- paths, loops, choices -----------------------------------------------------------------

NOT_EXHAUSTIVE = Rule(
    "choice.not-exhaustive",
    ERROR,
    "`choose` may return a case that has no path, and there is no default.",
    "The execution would fail there.",
    "add the case, or default=...",
)
UNKNOWN_CASE = Rule(
    "choice.unknown-case",
    ERROR,
    "There is a path for a case that `choose` can't return.",
    "The path is never taken: often the case is misspelt.",
    "use the values of the type that `choose` returns",
)

# -- the pivot -----------------------------------------------------------------------------

SEVERAL_PIVOTS = Rule(
    "pivot.several",
    ERROR,
    "A saga has more than one pivot.",
    "After the first there is no way back, so that the second one changes nothing.",
    "use then(...) for all but the first",
)
NESTED_PIVOT = Rule(
    "pivot.nested",
    ERROR,
    "A pivot is on a path or in a loop.",
    "Whether there is a way back must not depend on the way that was taken.",
    "put the pivot on the saga's main line",
)
PIVOT_IN_CHILD = Rule(
    "pivot.in-child",
    ERROR,
    "A child saga has a pivot, and its parent may still turn back.",
    "Should the parent, or a sibling, fail afterwards, the child can't undo its work.",
    "run the child last and once, or after the parent's own pivot",
)
UNDO_AFTER_PIVOT = Rule(
    "pivot.compensation-after",
    WARNING,
    "A step after the pivot has a compensation.",
    "Nothing is undone once the pivot is completed, so it never runs.",
    "remove it, or move the pivot",
)
FAILS_AFTER_PIVOT = Rule(
    "pivot.can-fail",
    ERROR,
    "Something after the pivot can fail for good: a fan-out, a child, an approval, a wait with a"
    " time-out. A loop with its bound and a step with a deadline are warnings.",
    "There is no way back any more, so the execution parks for a person.",
    "move it before the pivot; for a fan-out use join=Collect()",
)

# -- fan-outs ------------------------------------------------------------------------------

UNBOUNDED = Rule(
    "fan-out.unbounded",
    ERROR,
    "A fan-out has no max_items.",
    "A list that is longer than anybody thought would become as many executions at once.",
    "set max_items",
)
LARGE = Rule(
    "fan-out.large",
    WARNING,
    "A fan-out may have more than 10,000 items.",
    "All children are inserted in one transaction, and joined from one query.",
    "split the list, and fan out over its parts",
)
QUORUM_TOO_LARGE = Rule(
    "join.quorum-too-large",
    ERROR,
    "A quorum wants more successes than the fan-out may have items.",
    "It can't be reached: the fan-out always fails.",
    "raise max_items, or ask for fewer",
)

# -- time ----------------------------------------------------------------------------------

SHORT_DEADLINE = Rule(
    "deadline.too-short",
    WARNING,
    "A saga's deadline is shorter than what it has to wait for, or than a time-out in it.",
    "It is turned back before. Where its sleeps alone take longer, that is an error: it always is.",
    "give it a longer deadline",
)
NO_TIMEOUT = Rule(
    "wait.no-timeout",
    WARNING,
    "A wait for a signal or an approval has no time-out, and the saga no deadline.",
    "If nobody answers, it waits for ever, with all that it holds.",
    "set timeout=..., or give the saga a deadline",
)
TWO_TYPES = Rule(
    "signal.two-types",
    ERROR,
    "A saga waits for signals of one name with different payloads.",
    "A sender can't tell which is meant, and what doesn't fit is rejected.",
    "give the signals different names",
)
TWO_FIGURES = Rule(
    "limit.two-figures",
    ERROR,
    "Two limits of one name have different figures.",
    "They are one limit across the fleet; which figures hold would depend on who comes first.",
    "share one Limit, or give them different names",
)

RULES: tuple[Rule, ...] = tuple(value for value in list(vars().values()) if isinstance(value, Rule))
"""All of them, in the order in which the reference has them."""
