// Command argocd judges objects by a health check as Argo CD does: by the same Lua, with no more libraries than there.
//
// Its arguments are the health check and a file that has on each line an object, and the health that Argo CD is to show of it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
)

type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

type judged struct {
	Case   string         `json:"case"`
	Health health         `json:"health"`
	Object map[string]any `json:"object"`
}

// judge runs check on object. A check that takes a second is given up.
func judge(check string, object any) (health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	within, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(within)
	state.SetGlobal("obj", toLua(state, object))
	if err := state.DoString(check); err != nil {
		return health{}, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return health{}, fmt.Errorf("the check returned %s", state.Get(-1).Type())
	}
	word, isWord := table.RawGetString("status").(lua.LString)
	message, isText := table.RawGetString("message").(lua.LString)
	if !isWord || !isText {
		return health{}, errors.New("the check returned no status, or no message")
	}
	return health{Status: string(word), Message: string(message)}, nil
}

// toLua is what Lua sees of a value of JSON.
func toLua(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case bool:
		return lua.LBool(value)
	case float64:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	case []any:
		list := state.NewTable()
		for _, one := range value {
			list.Append(toLua(state, one))
		}
		return list
	case map[string]any:
		table := state.NewTable()
		for name, one := range value {
			table.RawSetString(name, toLua(state, one))
		}
		return table
	}
	return lua.LNil
}

func run(check, cases string) error {
	script, err := os.ReadFile(check)
	if err != nil {
		return err
	}
	file, err := os.Open(cases)
	if err != nil {
		return err
	}
	defer file.Close()
	count, wrong := 0, 0
	for lines := json.NewDecoder(file); ; count++ {
		var one judged
		if err := lines.Decode(&one); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("%s: %w", cases, err)
		}
		found, err := judge(string(script), one.Object)
		if err != nil || found != one.Health {
			wrong++
			fmt.Fprintf(os.Stderr, "%s: %+v wanted, %+v found, error %v\n", one.Case, one.Health, found, err)
		}
	}
	if count == 0 || wrong > 0 {
		return fmt.Errorf("%d of %d objects have another health than they should", wrong, count)
	}
	fmt.Printf("%d objects have the health that they should have in Argo CD\n", count)
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: argocd HEALTH.LUA CASES")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
