"""`vitral recipes`: the published recipes that come with Vitral, each with its command and the expected result."""

from dataclasses import asdict

from vitral.advice import counted
from vitral.cli.console import print_json, print_lines
from vitral.errors import RecipeError, did_you_mean
from vitral.training.settings.headers import Header, list_headers, recipe_text


def recipes(name: str | None = None, /, *, json: bool = False) -> None:
    """List the training recipes: what each does, what to expect, its command.

    Args:
        name: a recipe's name, to print it in full; or a word, to list the recipes that mention it.
        json: print JSON for programs.
    """
    headers = list_headers()
    exact = next((header for header in headers if header.name == name), None)
    if exact is not None and name is not None:
        _print_whole(exact, json=json)
        return
    matching = [header for header in headers if header.mentions(name or "")]
    word = (name or "").lower()
    # Those that begin with the word come first, then those that have it elsewhere in their name.
    matching.sort(key=lambda header: (not header.name.startswith(word), word not in header.name))
    if not matching:
        hint = did_you_mean(name or "", [header.name for header in headers])
        raise RecipeError(f"No recipe mentions '{name}'.{hint} 'vitral recipes' lists them all.")
    if json:
        print_json([asdict(header) for header in matching])
        return
    for header in matching:
        facts = (header.title, f"Expected  {header.expected}", f"Run       {header.command}")
        print_lines(header.name, *(f"  {fact}" for fact in facts))
    print_lines(f"{counted(len(matching), 'recipe')}; 'vitral recipes NAME' prints one in full.")


def _print_whole(header: Header, *, json: bool) -> None:
    text = recipe_text(header.name)
    if json:
        print_json({**asdict(header), "toml": text})
    else:
        print_lines(*text.splitlines())
