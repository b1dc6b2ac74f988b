// Package interop has no code, only tests: see go.mod.
package interop
