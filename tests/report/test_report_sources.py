"""The sources of the page keep what the page promises."""
import re

from conftest import ROOT

PAGE = ROOT / "ext" / "report" / "page"
CSS, JS = ((PAGE / f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
WRITE = (PAGE.parent / "write.c").read_text(encoding="utf-8")


def test_the_shell_is_under_125_kilobytes():
    """As it is written; the page has it without comments and indentation."""
    assert sum(len(text.encode()) for text in (CSS, JS)) < 125_000


def test_the_script_makes_no_markup_and_no_code_of_data():
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment"
                          r"|DOMParser|\beval\b|\bFunction\(|setAttribute\(.style|setTimeout\([\"'`]|srcdoc", JS)


def test_nothing_is_loaded_from_anywhere():
    assert not re.findall(r"\bfetch\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|importScripts|\bimport\b"
                          r"|new Worker|window\.open", JS)
    assert not re.findall(r"url\(|@import|@font-face", CSS)
    assert re.findall(r"https?://[^\s\"]+", WRITE + CSS + JS) == ["http://www.w3.org/2000/svg"]


def test_links_lead_to_items_only():
    assert set(re.findall(r"\.href = (.*);", JS)) <= {"`#e${item.n}`", "`#e${items[i].n}`", "`#e${first.n}`"}


def test_style_and_script_can_stand_in_the_page():
    assert "</" not in CSS and "</script" not in JS.lower() and "<!--" not in JS
    assert not re.findall(r"\son\w+=\\|\sstyle=\\", WRITE)
