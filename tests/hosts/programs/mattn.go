// Go's mattn/go-sqlite3: mattn MODULE FILE SCENARIO...
package main

import (
	"database/sql"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-sqlite3"
)

var bound = []any{"bound", "né€😀", []byte{0, 255}, nil, int64(1760000000000)}

func run(db *sql.DB, statement string) error {
	var values []any
	if strings.Contains(statement, "?, ?") {
		values = bound
	}
	if !strings.HasPrefix(statement, "SELECT") {
		_, err := db.Exec(statement, values...)
		return err
	}
	rows, err := db.Query(statement, values...)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, _ := rows.Columns()
	for rows.Next() {
		texts := make([]sql.NullString, len(names))
		places := make([]any, len(names))
		for i := range texts {
			places[i] = &texts[i]
		}
		if err := rows.Scan(places...); err != nil {
			return err
		}
		line := make([]string, len(names))
		for i, text := range texts {
			line[i] = text.String
		}
		fmt.Println(strings.Join(line, "|"))
	}
	return rows.Err()
}

func main() {
	sql.Register("blackbox", &sqlite3.SQLiteDriver{Extensions: []string{os.Args[1]}})
	db, err := sql.Open("blackbox", os.Args[2])
	if err != nil {
		panic(err)
	}
	defer db.Close()
	version, _, _ := sqlite3.Version()
	fmt.Println(version)
	for _, scenario := range os.Args[3:] {
		text, err := os.ReadFile(scenario)
		if err != nil {
			panic(err)
		}
		for _, statement := range strings.Split(string(text), "\n\n") {
			if strings.HasPrefix(statement, "--") {
				continue
			}
			if err := run(db, statement); err != nil {
				fmt.Println("error:", err)
			}
		}
	}
}
