"""docs/llvm-features.md has the features that stock compilers send."""

from pathlib import Path

from support import stock

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_has_what_stock_compilers_send(monkeypatch):
    stock.needs("clang-19", "clang-22")
    monkeypatch.syspath_prepend(DOCS)
    import llvm_features

    assert llvm_features.page() == llvm_features.PAGE.read_text()
