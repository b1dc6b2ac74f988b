//go:build !unix

package credentials

import "os"

func passedSignals() []os.Signal { return []os.Signal{os.Interrupt} }

// comesFromTerminal is always true: Windows sends Ctrl-C to every process of
// the console.
func comesFromTerminal(os.Signal) bool { return true }
