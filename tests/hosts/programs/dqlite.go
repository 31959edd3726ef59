// A node of a dqlite cluster that has the module, and its client:
//
//	dqlite node MODULE FOLDER ADDRESS [ADDRESS OF ANOTHER]   runs until its input ends
//	dqlite leader ADDRESS...                                 prints who leads
//	dqlite run FILE ADDRESS...                               runs the statements of a scenario
//	dqlite push AGENT ADDRESS...                             pushes rows, one after the other, until its input ends
//	dqlite dump FOLDER ADDRESS                               writes the files of that node
//
// The client needs no module: it sends text to the leader.
package main

/*
#cgo LDFLAGS: -ldl -lsqlite3
#include <dlfcn.h>
#include <sqlite3.h>
#include <stdlib.h>

// Gives the module to every connection that this process opens later.
static int registerModule(const char *zFile) {
  void *p = dlopen(zFile, RTLD_NOW);
  if (p == 0) return SQLITE_ERROR;
  return sqlite3_auto_extension((void (*)(void))dlsym(p, "sqlite3_blackbox_init"));
}
*/
import "C"

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"github.com/canonical/go-dqlite/app"
	"github.com/canonical/go-dqlite/client"
	"github.com/canonical/go-dqlite/driver"
)

var bound = []any{"bound", "né€😀", []byte{0, 255}, nil, int64(1760000000000)}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func untilInputEnds() { io.Copy(io.Discard, os.Stdin) }

func node(module, folder, address string, others []string) {
	name := C.CString(module)
	defer C.free(unsafe.Pointer(name))
	if C.registerModule(name) != C.SQLITE_OK {
		must(fmt.Errorf("cannot load %s", module))
	}
	options := []app.Option{app.WithAddress(address), app.WithCluster(others)}
	node, err := app.New(folder, options...)
	must(err)
	must(node.Ready(context.Background()))
	fmt.Println("ready")
	untilInputEnds()
	must(node.Close())
}

func store(addresses []string) client.NodeStore {
	nodes := []client.NodeInfo{}
	for _, address := range addresses {
		nodes = append(nodes, client.NodeInfo{Address: address})
	}
	store := client.NewInmemNodeStore()
	must(store.Set(context.Background(), nodes))
	return store
}

func open(addresses []string) *sql.DB {
	made, err := driver.New(store(addresses))
	must(err)
	sql.Register("dqlite", made)
	db, err := sql.Open("dqlite", "flight.db")
	must(err)
	db.SetMaxOpenConns(1)
	return db
}

func leader(addresses []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	found, err := client.FindLeader(ctx, store(addresses))
	must(err)
	info, err := found.Leader(ctx)
	must(err)
	fmt.Println(info.Address)
}

func statement(db *sql.DB, text string) error {
	var values []any
	if strings.Contains(text, "?, ?") {
		values = bound
	}
	if !strings.HasPrefix(text, "SELECT") {
		_, err := db.Exec(text, values...)
		return err
	}
	rows, err := db.Query(text, values...)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, _ := rows.Columns()
	for rows.Next() {
		texts := make([]sql.NullString, len(names))
		places := make([]any, len(names))
		line := make([]string, len(names))
		for i := range texts {
			places[i] = &texts[i]
		}
		if err := rows.Scan(places...); err != nil {
			return err
		}
		for i, text := range texts {
			line[i] = text.String
		}
		fmt.Println(strings.Join(line, "|"))
	}
	return rows.Err()
}

func run(file string, addresses []string) {
	db := open(addresses)
	text, err := os.ReadFile(file)
	must(err)
	for _, part := range strings.Split(string(text), "\n\n") {
		if strings.HasPrefix(part, "--") {
			continue
		}
		if err := statement(db, part); err != nil {
			fmt.Println("error:", err)
		}
	}
	must(db.Close())
}

// A push that fails is tried again under the same id, as a program would after a new leader is chosen. A number is
// printed when its push was acknowledged.
func push(agent string, addresses []string) {
	db := open(addresses)
	ended := make(chan bool)
	go func() { untilInputEnds(); close(ended) }()
	for i := 1; ; {
		select {
		case <-ended:
			must(db.Close())
			return
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err := db.ExecContext(ctx, "INSERT INTO ring(agent_id, event_id, request_body) VALUES(?, ?, 'again')",
			agent, fmt.Sprint(i))
		cancel()
		if err == nil {
			fmt.Println(i)
			i++
		} else {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func dump(folder, address string) {
	ctx := context.Background()
	node, err := client.New(ctx, address)
	must(err)
	files, err := node.Dump(ctx, "flight.db")
	must(err)
	for _, file := range files {
		must(os.WriteFile(filepath.Join(folder, filepath.Base(file.Name)), file.Data, 0o600))
	}
}

func main() {
	args := os.Args[1:]
	switch args[0] {
	case "node":
		node(args[1], args[2], args[3], args[4:])
	case "leader":
		leader(args[1:])
	case "run":
		run(args[1], args[2:])
	case "push":
		push(args[1], args[2:])
	case "dump":
		dump(args[1], args[2])
	}
}
