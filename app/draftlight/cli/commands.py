"""The terminal's commands by name."""

from draftlight.cli import bench, chat, forge, generate, models, probe, tune
from draftlight.cli.arguments import Arguments
from draftlight.cli.parts import Parts


def run(arguments: Arguments, parts: Parts) -> int:
    """Run the command that was asked for and return its exit status. Raises UserError."""
    match arguments.command:
        case "bench":
            return bench.run(arguments, parts)
        case "chat":
            return chat.run(arguments, parts)
        case "forge":
            return tune.run(arguments, parts) if tune.is_asked(arguments) else forge.run(arguments, parts)
        case "generate":
            return generate.run(arguments, parts)
        case "models":
            return models.run(arguments)
        case "probe":
            return probe.run(arguments, parts)
        case other:
            raise AssertionError(f"argparse let an unknown command through: {other}")
