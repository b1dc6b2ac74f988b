package registration_test

import (
	"os"
	"testing"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }
