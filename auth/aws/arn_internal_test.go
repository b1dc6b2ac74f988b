package aws

import (
	"testing"

	"github.com/workloadid/workloadid/internal/awsname"
)

// The short cut accepts nothing that ParseRoleARN refuses.
func FuzzPlainRole(f *testing.F) {
	for _, arn := range []string{
		"arn:aws:iam::123456789012:role/tenant-a", "arn:aws:iam::123456789012:role/", "arn:aws:iam::12345678901x:role/a",
		"arn:aws:iam::123456789012:role/path/a", "arn:aws-cn:iam::123456789012:role/a",
		"arn:aws:sts::123456789012:role/a", "",
	} {
		f.Add(arn)
	}
	f.Fuzz(func(t *testing.T, arn string) {
		if !isPlainRole(arn) {
			return
		}
		if parsed, err := ParseRoleARN(arn); err != nil || parsed.String() != arn || parsed.Path != "/" ||
			parsed.Partition != "aws" {
			t.Errorf("%q is plain, but parses as %+v, %v", arn, parsed, err)
		}
	})
}

func TestPlainRole(t *testing.T) {
	if !isPlainRole("arn:aws:iam::123456789012:role/tenant-a") {
		t.Error("does not know the usual form")
	}
}

// The short cut accepts nothing that awsname.ParseClusterARN refuses, and knows
// the usual form.
func FuzzPlainCluster(f *testing.F) {
	for _, arn := range []string{
		"arn:aws:eks:eu-central-1:123456789012:cluster/remote", "arn:aws:eks:eu-central-1:123456789012:cluster/",
		"arn:aws:eks:eu-central-1:12345678901x:cluster/a",
		"arn:aws-cn:eks:cn-north-1:123456789012:cluster/a", "arn:aws:eks:us-gov-west-1:123456789012:cluster/a",
		"arn:aws:eks:eu-central-1", "",
		"arn:aws:eks:eu-central-1:123456789012:cluster/a:b", "arn:aws:eks:eu-central-1:123456789012:cluster/-a",
	} {
		f.Add(arn)
	}
	f.Fuzz(func(t *testing.T, arn string) {
		parsed, err := awsname.ParseClusterARN(arn)
		if want := err == nil && parsed.Partition == "aws"; isPlainCluster(arn) != want {
			t.Errorf("%q: %t, but it is %+v, %v", arn, !want, parsed, err)
		}
	})
}
