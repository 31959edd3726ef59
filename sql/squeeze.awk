# squeeze.awk: SQL without its comments, and with white space only between words:
# every connection reads the text of the schema. Literals and quoted names stay as
# they are.
{
  line = $0 "\n"
  out = ""
  for (i = 1; i <= length(line); i++) {
    c = substr(line, i, 1)
    if (quote == "" && (c == " " || c == "\n")) {
      if (space != "\n") space = c
      continue
    }
    if (quote == "" && substr(line, i, 2) == "--") {
      i = length(line) - 1
      continue
    }
    if (quote == "" && (last c ~ /^[A-Za-z0-9_]+$/ || last c == "--")) out = out space
    out = out c
    if (quote != "") quote = c == quote ? "" : quote
    else if (c == "'" || c == "\"") quote = c
    last = c
    space = ""
  }
  printf "%s", out
}
END { printf "\n" }
