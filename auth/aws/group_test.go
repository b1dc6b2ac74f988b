package aws_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// Sessions of a broken role that differ only in the values of their tags, as
// those of pods do, share its failure.
func TestSessionsOfABrokenRole(t *testing.T) {
	w := newEnvironment(t)
	tokens := testenv.Cache(t)
	get := func(pod int, change func(*aws.AssumeRole)) error {
		r := aws.AssumeRole{RoleARN: target, Tags: map[string]string{"pod": fmt.Sprintf("pod-%d", pod)}}
		if change != nil {
			change(&r)
		}
		_, err := w.get(t, "tenant-a", "app", testenv.WithCache(tokens, "tenant-a"), aws.WithAssumeRole(r))
		return err
	}
	for pod := range 5 {
		err := get(pod, nil)
		testenv.CheckError(t, err, auth.ErrDenied, target)
		if held := new(*cache.BackoffError); pod > 1 && !errors.As(err, held) {
			t.Errorf("pod %d: %v is not held back", pod, err)
		}
	}
	if n := w.Cloud.Calls("sts", "AssumeRole"); n != 2 {
		t.Errorf("%d calls of AssumeRole", n)
	}
	// These may be wrong for one object and right for another.
	n := 2
	for name, change := range map[string]func(*aws.AssumeRole){
		"another role":              func(r *aws.AssumeRole) { r.RoleARN += "-2" },
		"another external ID":       func(r *aws.AssumeRole) { r.ExternalID = "ext-1" },
		"another source identity":   func(r *aws.AssumeRole) { r.SourceIdentity = "ext-1" },
		"a session name of its own": func(r *aws.AssumeRole) { r.SessionName = "ext-1" },
		"a session policy":          func(r *aws.AssumeRole) { r.Policy = "{}" },
		"another tag":               func(r *aws.AssumeRole) { r.Tags["team"] = "a" },
	} {
		n++
		if err := get(n+100, change); !errors.Is(err, auth.ErrDenied) || w.Cloud.Calls("sts", "AssumeRole") != n {
			t.Errorf("%s: %v, after %d calls of AssumeRole, want %d", name, err, w.Cloud.Calls("sts", "AssumeRole"), n)
		}
	}
}

// The failures of a single object, whose session tag is wrong, do not refuse
// the objects that have the tag right.
func TestWrongTagOfOneObjectHoldsBackNoOther(t *testing.T) {
	for code, status := range map[string]int{"AccessDenied": http.StatusForbidden,
		"PackedPolicyTooLarge": http.StatusBadRequest} {
		t.Run(code, func(t *testing.T) {
			w := newEnvironment(t).chain(func(trust *cloudtest.Trust) { trust.TagSession = true })
			w.Cloud.AddFault(cloudtest.Fault{Service: "sts", Action: "AssumeRole", Status: status, Code: code,
				Message: "refused",
				Match:   func(c cloudtest.Call) bool { return strings.Contains(fmt.Sprint(c.Parameters), "wrong") }})
			tokens := testenv.Cache(t)
			get := func(team string) error {
				_, err := w.get(t, "tenant-a", "app", testenv.WithCache(tokens, "tenant-a"),
					aws.WithAssumeRole(aws.AssumeRole{RoleARN: target, Tags: map[string]string{"team": team}}))
				return err
			}
			if err := get("wrong"); err == nil {
				t.Fatal("the wrong tag was accepted")
			}
			if err := get("right"); err != nil {
				t.Error(err)
			}
		})
	}
}
