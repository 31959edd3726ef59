"""Holds and erasures that find nothing fail now, unless they say that they are to be remembered, as
the oracle's always were: statements say so to the checkout, and name its tables. See Translation in intended.py."""
REMEMBER = "'{\"remember\":true}')"
TRANSLATIONS = [
    (r"\bretention_hold\(((?:[^(),]*,){5}[^(),]*)\)", r"retention_hold(\1, " + REMEMBER,
     "a hold on what is not there says so"),
    (r"\bretention_hold\(((?:[^(),]*,){4}[^(),]*)\)", r"retention_hold(\1, NULL, " + REMEMBER,
     "a hold on what is not there says so"),
    (r"\bblackbox_erase\(((?:[^(),]*,){4})([^(),]*)\)",
     r"blackbox_erase(\1 json_patch(coalesce(\2, '{}'), " + REMEMBER + ")",
     "an erasure of nothing says so"),
    (r"\bblackbox_erase\(((?:[^(),]*,){3}[^(),]*)\)", r"blackbox_erase(\1, " + REMEMBER,
     "an erasure of nothing says so"),
    (r"\brollout_messages\b", "rollout_histories", "the rules of histories have the name of what they are"),
    (r"\breport_masks\b", "blackbox_secrets", "one rule set"),
]
