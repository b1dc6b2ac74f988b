package bootstrap_test

import (
	"io"
	"log"
	"os"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

// quiet drops what servers say of clients that do not trust them.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
