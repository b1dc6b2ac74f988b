package awsname_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/awsname"
)

func TestRegions(t *testing.T) {
	for _, region := range []string{"us-east-1", "eu-central-2", "us-gov-west-1", "eusc-de-east-1", "us-isof-south-1",
		"ap-southeast-10"} {
		if !awsname.ValidRegion(region) {
			t.Errorf("%q is refused", region)
		}
	}
	for _, region := range []string{"", "-", "us", "us-1", "us-east", "us-east-", "us-east-123", "US-EAST-1",
		"us-east-1.evil", "us--east-1",
		"-us-east-1", "us-east--1", "us-east-1/", "us_east_1", "us-east-1a", "us-east-a1", "us-e1st-1",
		strings.Repeat("a", 30) + "-b-1"} {
		if awsname.ValidRegion(region) {
			t.Errorf("%q is accepted", region)
		}
	}
}

func TestAccounts(t *testing.T) {
	for account, want := range map[string]bool{"123456789012": true, "": false, "12345678901": false,
		"1234567890123": false, "12345678901x": false, "１２３４": false} {
		if got := awsname.ValidAccount(account); got != want {
			t.Errorf("%q: %t", account, got)
		}
	}
}

const eksCluster = "arn:aws:eks:eu-central-1:123456789012:cluster/prod"

func TestParseClusterARN(t *testing.T) {
	for arn, want := range map[string]awsname.ClusterARN{
		eksCluster: {Partition: "aws", Region: "eu-central-1", Account: "123456789012", Name: "prod"},
		"arn:aws-cn:eks:cn-north-1:123456789012:cluster/A_b-1": {Partition: "aws-cn", Region: "cn-north-1",
			Account: "123456789012", Name: "A_b-1"},
	} {
		if got, err := awsname.ParseClusterARN(arn); err != nil || got != want || got.String() != arn {
			t.Errorf("%q: %+v, %v", arn, got, err)
		}
	}
	for _, arn := range []string{"", "prod", " " + eksCluster, eksCluster + " ", eksCluster + "/x", eksCluster + "\n",
		eksCluster + ":x", "arn:aws:eks:eu-central-1:123456789012:cluster/",
		"arn:aws:eks:eu-central-1:123456789012:cluster/-a", "arn:aws:eks:eu-central-1:123456789012:cluster/ä",
		"arn:aws:eks:eu-central-1::cluster/prod",
		"arn:aws:eks::123456789012:cluster/prod", "arn:aws:eks:eu-central-1.evil.example/:123456789012:cluster/prod",
		"arn:aws:iam::123456789012:role/prod",
		"arn:evil:eks:eu-central-1:123456789012:cluster/prod", "arn:aws:eks:us-gov-west-1:123456789012:cluster/prod",
		"arn:aws:eks:eu-central-1:123456789012:cluster/" + strings.Repeat("a", 101)} {
		if got, err := awsname.ParseClusterARN(arn); err == nil {
			t.Errorf("%q was accepted: %+v", arn, got)
		}
	}
}

func FuzzClusterARN(f *testing.F) {
	f.Add(eksCluster)
	f.Add("arn:aws-us-gov:eks:us-gov-west-1:123456789012:cluster/a_b")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := awsname.ParseClusterARN(s)
		if err != nil {
			return
		}
		partition, ok := awsname.PartitionOf(a.Region)
		if a.String() != s || !ok || partition.Name != a.Partition || !awsname.ValidAccount(a.Account) ||
			!awsname.ValidClusterName(a.Name) {
			t.Errorf("%q was accepted as %+v", s, a)
		}
	})
}

func TestPartitions(t *testing.T) {
	for region, want := range map[string]string{
		"eu-central-1": "aws", "us-east-1": "aws", "ap-southeast-10": "aws", "cn-north-1": "aws-cn",
		"us-gov-west-1": "aws-us-gov",
		"us-iso-east-1": "aws-iso", "us-isob-east-1": "aws-iso-b", "eu-isoe-west-1": "aws-iso-e",
		"us-isof-south-1": "aws-iso-f",
		"eusc-de-east-1":  "aws-eusc",
		"us-isox-east-1":  "", "eu-gov-west-1": "", "cn-gov-north-1": "", "eusc-east-1": "", "a-b-c-d-1": "",
		"us-east": "", "": "",
	} {
		p, ok := awsname.PartitionOf(region)
		if ok != (want != "") || ok && (p.Name != want || !awsname.KnownPartition(p.Name)) {
			t.Errorf("%q: %+v, %t", region, p, ok)
		}
	}
}

func TestRegistries(t *testing.T) {
	const a = "123456789012"
	for host, want := range map[string]awsname.Registry{
		"123456789012.dkr-ecr-fips.us-east-1.on.aws": {Account: "123456789012", Region: "us-east-1", FIPS: true,
			DualStack: true},
		"123456789012.dkr-ecr-fips.us-gov-west-1.on.aws": {Account: "123456789012", Region: "us-gov-west-1",
			FIPS: true, DualStack: true},
		a + ".dkr.ecr.eu-central-1.amazonaws.com":                 {Account: a, Region: "eu-central-1"},
		a + ".dkr.ecr-fips.us-gov-west-1.amazonaws.com":           {Account: a, Region: "us-gov-west-1", FIPS: true},
		a + ".dkr.ecr.cn-north-1.amazonaws.com.cn":                {Account: a, Region: "cn-north-1"},
		a + ".dkr.ecr.eusc-de-east-1.amazonaws.eu":                {Account: a, Region: "eusc-de-east-1"},
		a + ".dkr.ecr.us-isob-east-1.sc2s.sgov.gov":               {Account: a, Region: "us-isob-east-1"},
		a + ".dkr.ecr.us-iso-east-1.c2s.ic.gov":                   {Account: a, Region: "us-iso-east-1"},
		a + ".dkr.ecr.eu-isoe-west-1.cloud.adc-e.uk":              {Account: a, Region: "eu-isoe-west-1"},
		a + ".dkr.ecr.us-isof-south-1.csp.hci.ic.gov":             {Account: a, Region: "us-isof-south-1"},
		a + ".dkr-ecr.eu-central-1.on.aws":                        {Account: a, Region: "eu-central-1", DualStack: true},
		a + ".dkr-ecr.cn-northwest-1.on.amazonwebservices.com.cn": {Account: a, Region: "cn-northwest-1", DualStack: true},
		"public.ecr.aws":     {Region: "us-east-1", Public: true},
		"ecr-public.aws.com": {Region: "us-east-1", Public: true},
	} {
		if got, ok := awsname.ParseRegistry(host); !ok || got != want {
			t.Errorf("%q: %+v, %t", host, got, ok)
		}
	}
}

// lookAlikes returns hosts similar to a good one. Their owners must not receive
// a password.
func lookAlikes(good string) []string {
	list := []string{
		good + ".evil.example", good + ".", "." + good, "evil." + good, "evil" + good, good + "x", good + ":443", good +
			":5000", good + "@evil.example",
		"evil.example/" + good, good + "%00.evil.example", good + "\n", " " + good, strings.ToUpper(good),
		strings.Replace(good, ".", "-", 1),
		strings.Replace(good, ".", "..", 1), strings.Replace(good, "a", "а", 1), "evil.example?" + good, "evil.example#" +
			good, "[" + good + "]", "",
	}
	return slices.DeleteFunc(list, func(s string) bool { return s == good })
}

func TestRegistryLookAlikes(t *testing.T) {
	const good = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"
	hosts := slices.Concat(lookAlikes(good), lookAlikes("123456789012.dkr-ecr.eu-central-1.on.aws"),
		lookAlikes("public.ecr.aws"), []string{
			"12345678901.dkr.ecr.eu-central-1.amazonaws.com", "1234567890123.dkr.ecr.eu-central-1.amazonaws.com",
			"12345678901x.dkr.ecr.eu-central-1.amazonaws.com", "dkr.ecr.eu-central-1.amazonaws.com",
			"123456789012.dkr.ecr.amazonaws.com", "123456789012.dkr.ecr.s3.amazonaws.com", "123456789012.dkr.ecr..amazonaws.com",
			"123456789012.ecr.eu-central-1.amazonaws.com", "123456789012.dkr.ecr-evil.eu-central-1.amazonaws.com",
			"123456789012.dkr.ecr.eu-central-1.evil.amazonaws.com", "123456789012.dkr.ecr.eu-central-1.evil-amazonaws.com",
			"123456789012.dkr.ecr.eu-central-1.amazonaws.com.cn", "123456789012.dkr.ecr.cn-north-1.amazonaws.com",
			"123456789012.dkr.ecr.us-iso-east-1.amazonaws.com", "123456789012.dkr.ecr.us-iso-east-1.sc2s.sgov.gov",
			"123456789012.dkr.ecr.eu-central-1.amazonaws.eu", "123456789012.dkr.ecr.eu-central-1.on.aws",
			"123456789012.dkr.ecr.eu-central-1.api.aws",
			"123456789012.dkr-ecr.eu-central-1.amazonaws.com", "123456789012.dkr-ecr.cn-north-1.on.aws",
			"123456789012.dkr-ecr.us-iso-east-1.",
			"123456789012.dkr-ecr.eu-central-1.on.amazonwebservices.com.cn", "xpublic.ecr.aws", "public.ecr.aws.com",
			"ecr-public.aws", "ecr.aws",
			"evil.public.ecr.aws", "ecr-public.us-east-1.api.aws", "amazonaws.com", "eu-central-1.amazonaws.com",
		})
	for _, host := range hosts {
		if got, ok := awsname.ParseRegistry(host); ok {
			t.Errorf("%q was accepted: %+v", host, got)
		}
	}
}

func TestGitHosts(t *testing.T) {
	for host, want := range map[string]string{
		"git-codecommit.eu-central-1.amazonaws.com":       "eu-central-1",
		"git-codecommit-fips.us-gov-west-1.amazonaws.com": "us-gov-west-1",
		"git-codecommit.cn-north-1.amazonaws.com.cn":      "cn-north-1",
	} {
		if got, ok := awsname.ParseGitHost(host); !ok || got != want {
			t.Errorf("%q: %q, %t", host, got, ok)
		}
	}
	for _, host := range append(lookAlikes("git-codecommit.eu-central-1.amazonaws.com"),
		"git-codecommit.eu-central-1.api.aws",
		"git-codecommit.eu-central-1.amazonaws.com.cn", "git-codecommit.amazonaws.com",
		"git-codecommit-evil.eu-central-1.amazonaws.com",
		"codecommit.eu-central-1.amazonaws.com", "github.com") {
		if got, ok := awsname.ParseGitHost(host); ok {
			t.Errorf("%q was accepted: %q", host, got)
		}
	}
}

func TestEndpoints(t *testing.T) {
	for host, want := range map[string]awsname.Endpoint{
		"api.ecr.eu-central-1.amazonaws.com": {Service: "api.ecr", Region: "eu-central-1"},
		"ecr.eu-central-1.api.aws":           {Service: "ecr", Region: "eu-central-1", DualStack: true},
	} {
		if got, ok := awsname.ParseEndpoint(host, "api.ecr", "ecr"); !ok || got != want {
			t.Errorf("%q: %+v, %t", host, got, ok)
		}
	}
	for _, host := range lookAlikes("ecr.eu-central-1.api.aws") {
		if got, ok := awsname.ParseEndpoint(host, "api.ecr", "ecr"); ok {
			t.Errorf("%q was accepted: %+v", host, got)
		}
	}
}

func TestSTSRegions(t *testing.T) {
	for host, want := range map[string]string{
		"sts.amazonaws.com": "us-east-1", "sts.eu-central-1.amazonaws.com": "eu-central-1",
		"sts-fips.us-gov-west-1.amazonaws.com": "us-gov-west-1",
		"sts.eu-central-1.api.aws":             "eu-central-1", "sts.amazonaws.com.cn": "",
		"vpce-0abc123def4567890-ab12cd34-eu-central-1a.sts.eu-central-1.vpce.amazonaws.com": "eu-central-1",
	} {
		if got := awsname.STSRegion(host); got != want || !awsname.IsSTSHost(host) {
			t.Errorf("%q: got the region %q of an STS host: %t, want %q", host, got, awsname.IsSTSHost(host), want)
		}
	}
}

func inPartition(host, region string) bool {
	p, ok := awsname.PartitionOf(region)
	return ok && (strings.HasSuffix(host, "."+p.Suffix) || p.Registries != "" && strings.HasSuffix(host, "."+p.Registries))
}

func FuzzRegistry(f *testing.F) {
	f.Add("123456789012.dkr.ecr.eu-central-1.amazonaws.com")
	f.Add("123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn")
	f.Add("public.ecr.aws")
	f.Fuzz(func(t *testing.T, host string) {
		r, ok := awsname.ParseRegistry(host)
		if !ok || host == "public.ecr.aws" || host == "ecr-public.aws.com" {
			return
		}
		if !inPartition(host, r.Region) || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" ||
			!strings.HasPrefix(host, r.Account+".dkr") ||
			!awsname.ValidAccount(r.Account) || !strings.Contains(host, "."+r.Region+".") || r.Public {
			t.Errorf("%q was accepted as %+v", host, r)
		}
	})
}

func FuzzGitHost(f *testing.F) {
	f.Add("git-codecommit.eu-central-1.amazonaws.com")
	f.Add("git-codecommit-fips.us-gov-west-1.amazonaws.com")
	f.Fuzz(func(t *testing.T, host string) {
		region, ok := awsname.ParseGitHost(host)
		if ok && (!inPartition(host, region) || !strings.HasPrefix(host, "git-codecommit") ||
			!strings.Contains(host, "."+region+".") || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "") {
			t.Errorf("%q was accepted", host)
		}
	})
}

// The short cut knows the repositories that ParseRegistry would find in the
// commercial partition, and no others.
func FuzzRegionOfPlainRegistry(f *testing.F) {
	for _, repository := range []string{"123456789012.dkr.ecr.eu-central-1.amazonaws.com/a/b",
		"123456789012.dkr.ecr.eu-central-1.amazonaws.com",
		"123456789012.dkr.ecr.us-gov-west-1.amazonaws.com/a", "123456789012.dkr.ecr.cn-north-1.amazonaws.com/a",
		"123456789012.dkr.ecr.amazonaws.com",
		"123456789012.dkr.ecr.eu-central-1.amazonaws.com:443/a", "12345678901x.dkr.ecr.eu-central-1.amazonaws.com",
		"public.ecr.aws/a", "", "/"} {
		f.Add(repository)
	}
	f.Fuzz(func(t *testing.T, repository string) {
		host, _, _ := strings.Cut(repository, "/")
		r, ok := awsname.ParseRegistry(host)
		p, _ := awsname.PartitionOf(r.Region)
		want := ok && p.Name == "aws" && !r.Public && !r.FIPS && !r.DualStack
		region, got := awsname.RegionOfPlainRegistry(repository)
		if got != want || got && region != r.Region {
			t.Errorf("%q: %q, %t; ParseRegistry finds %+v, %t", repository, region, got, r, ok)
		}
	})
}

func FuzzCommercialRegion(f *testing.F) {
	for _, region := range []string{"eu-central-1", "us-gov-west-1", "cn-north-1", "eusc-de-east-1", "eusc-de-1",
		"us-iso-1", "us-isof-south-1", "cn-north-a-1", ""} {
		f.Add(region)
	}
	f.Fuzz(func(t *testing.T, region string) {
		p, ok := awsname.PartitionOf(region)
		if got := awsname.IsCommercialRegion(region); got != (ok && p.Name == "aws") {
			t.Errorf("%q: %t, but it lies in %q", region, got, p.Name)
		}
	})
}

// A host that is named as a registry, but whose form is not known, belongs to
// AWS all the same: anonymous access to it fails at the registry alone.
func TestHostsNamedAsRegistries(t *testing.T) {
	for host, want := range map[string]bool{
		"123456789012.dkr.ecr.eu-west-1.amazonaws.com":                  true,
		"123456789012.dkr-ecr-fips.us-east-1.on.aws":                    true,
		"123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn":   true,
		"123456789012.dkr-ecr-next.us-east-1.on.aws":                    true,
		"123456789012.dkr.ecr-next.us-east-1.amazonaws.com":             true,
		"12345.dkr.ecr.eu-west-1.amazonaws.com":                         true,
		"vpce-0123456789abcdef0-a.dkr.ecr.eu-west-1.vpce.amazonaws.com": true,
		"public.ecr.aws":                  true,
		"next.ecr.aws":                    true,
		"ecr-public.aws.com":              true,
		"api.ecr.eu-west-1.amazonaws.com": false,
		"s3.eu-west-1.amazonaws.com":      false,
		"x.dkr.ecr.evil.example":          false,
		"ecr.aws.evil.example":            false,
		"docker.io":                       false,
	} {
		if got := awsname.LooksLikeRegistry(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}
