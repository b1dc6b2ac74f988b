package doctor_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// What a trust policy's other statements do to a token that one of them admits.
func TestTrustPolicyStatements(t *testing.T) {
	const allow = `{"Effect":"Allow","Action":"ACTION","Principal":{"Federated":"PROVIDER"},"Condition":{"StringEquals":{"issuer.example:sub":"SUB","issuer.example:aud":"sts.amazonaws.com"}}}`
	for name, tt := range map[string]struct {
		more   string
		action string
		want   doctor.Result
	}{
		"nothing else":              {"", "", doctor.Pass},
		"wildcard in the action":    {"", "sts:AssumeRole*", doctor.Pass},
		"another case":              {"", "STS:assumerolewithwebidentity", doctor.Pass},
		"deny everybody":            {`{"Effect":"Deny","Action":"sts:AssumeRoleWithWebIdentity","Principal":"*"}`, "", doctor.Fail},
		"deny everybody of AWS":     {`{"Effect":"Deny","Action":"sts:Assume*","Principal":{"AWS":"*"}}`, "", doctor.Fail},
		"deny this subject":         {`{"Effect":"Deny","Action":"*","Principal":{"Federated":"PROVIDER"},"Condition":{"StringEquals":{"Issuer.Example:Sub":"SUB"}}}`, "", doctor.Fail},
		"deny all other subjects":   {`{"Effect":"Deny","Action":"*","Principal":"*","Condition":{"StringNotEquals":{"issuer.example:sub":"SUB"}}}`, "", doctor.Pass},
		"deny all but another":      {`{"Effect":"Deny","Action":"*","Principal":"*","Condition":{"StringNotLike":{"issuer.example:sub":"other*"}}}`, "", doctor.Fail},
		"deny another subject":      {`{"Effect":"Deny","Action":"*","Principal":"*","Condition":{"StringLike":{"issuer.example:sub":"other*"}}}`, "", doctor.Pass},
		"deny by address":           {`{"Effect":"Deny","Action":"*","Principal":"*","Condition":{"NotIpAddress":{"aws:SourceIp":"192.0.2.0/24"}}}`, "", doctor.Unknown},
		"deny all other actions":    {`{"Effect":"Deny","NotAction":"sts:TagSession","Principal":"*"}`, "", doctor.Fail},
		"deny all other principals": {`{"Effect":"Deny","Action":"*","NotPrincipal":{"AWS":"arn:aws:iam::123456789012:root"}}`, "", doctor.Unknown},
		"deny another account":      {`{"Effect":"Deny","Action":"*","Principal":{"AWS":"arn:aws:iam::210987654321:root"}}`, "", doctor.Pass},
		"deny another action":       {`{"Effect":"Deny","Action":"sts:TagSession","Principal":"*"}`, "", doctor.Pass},
		"deny tokens of others":     {`{"Effect":"Deny","Action":"*","Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/other.example"}}`, "", doctor.Pass},
		"deny by an odd quantifier": {`{"Effect":"Deny","Action":"*","Principal":"*","Condition":{"ForAllValues:StringNotEquals":{"issuer.example:sub":"x"}}}`, "", doctor.Unknown},
	} {
		w := newWorld(t, "aws")
		action := tt.action
		if action == "" {
			action = "sts:AssumeRoleWithWebIdentity"
		}
		statements := strings.ReplaceAll(allow, "ACTION", action)
		if tt.more != "" {
			statements += "," + tt.more
		}
		w.trust = strings.NewReplacer("PROVIDER", "arn:aws:iam::"+account+":oidc-provider/issuer.example", "SUB", subject).
			Replace(`{"Role":{"AssumeRolePolicyDocument":{"Statement":[` + statements + `]}}} {"Url":"issuer.example","ClientIDList":["sts.amazonaws.com"]}`)
		w.config.Skip = []string{"exchange"}
		if f := w.run().Of("trust-rule"); f.Result != tt.want {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// A condition that is not about the token is not judged.
func TestTrustPolicyForeignCondition(t *testing.T) {
	for condition, want := range map[string]doctor.Result{
		`{"StringEquals":{"issuer.example:aud":"sts.amazonaws.com","sts:RoleSessionName":"x"}}`:          doctor.Unknown,
		`{"stringequals":{"ISSUER.example:aud":"sts.amazonaws.com"}}`:                                    doctor.Pass,
		`{"StringEquals":{"issuer.example:aud":"sts.amazonaws.com"},"StringEqualsIfExists":{"a:b":"x"}}`: doctor.Pass,
	} {
		w := newWorld(t, "aws")
		w.trust = awsTrust(w.issuer.URL(), condition)
		w.config.Skip = []string{"exchange"}
		if f := w.run().Of("trust-rule"); f.Result != want {
			t.Errorf("%s: %+v", condition, f)
		}
	}
}

// A pod with EKS Pod Identity is well, though it has no annotation and no token of its own.
func TestPodIdentityIsNoFault(t *testing.T) {
	inPod := newWorld(t, "aws")
	helper(200, "application/json", `{"AccessKeyId":"a","SecretAccessKey":"b","Token":"c","Expiration":"2099-01-01T00:00:00Z"}`)(inPod)
	inPod.env = map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": inPod.config.Helper, "AWS_REGION": "eu-central-1"}
	inPod.config.Helper, inPod.config.InPod, inPod.withoutCluster = "", true, true
	inPod.config.ServiceAccount.Name, inPod.config.ServiceAccount.Namespace = "", ""
	now := time.Now()
	inPod.config.Now = func() time.Time { return now } // a machine that is busy is no endpoint that is slow
	outside := newWorld(t, "aws")
	outside.account.Annotations = nil
	withPod(func(_ *world, pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_CONTAINER_CREDENTIALS_FULL_URI", Value: "http://169.254.170.23/v1/credentials"}}
	})(outside)
	for name, w := range map[string]*world{"in the pod": inPod, "from outside": outside} {
		report := w.run()
		for _, id := range []string{"source", "identifiers", "service-account", "pod", "helpers"} {
			if f := report.Of(id); f.Result == doctor.Fail || f.Result == doctor.Warn {
				t.Errorf("%s: %+v\n%s", name, f, report)
			}
		}
	}
}

// What hides the identity is found in every container, also if a Secret gives it. A sidecar may be meant to use something else.
func TestHiddenIdentityOfPod(t *testing.T) {
	w := newWorld(t, "aws")
	withPod(func(_ *world, pod *corev1.Pod) {
		sidecar := corev1.Container{Name: "sidecar", Image: "i", Env: []corev1.EnvVar{{Name: "AWS_ACCESS_KEY_ID",
			ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "id"}}}}}
		pod.Spec.Containers = append(pod.Spec.Containers, sidecar)
	})(w)
	if f := w.run().Of("pod"); f.Result != doctor.Warn || !strings.Contains(f.Message, "sidecar") {
		t.Errorf("%+v", f)
	}
}

// Nobody sees a blank at the end of a value, so it is quoted; and no remedy has the cloud trust a wrong audience.
func TestBlankInAudience(t *testing.T) {
	w := newWorld(t, "aws")
	w.config.Token = w.sign(func(claims map[string]any) { claims["aud"] = []string{"sts.amazonaws.com "} })
	w.trust = awsTrust(w.issuer.URL(), goodCondition(w.issuer.URL()))
	report := w.run()
	if f := report.Of("audience"); f.Result != doctor.Fail || len(f.Fields) == 0 || !strings.Contains(f.Fields[0].Observed, `amazonaws.com "`) {
		t.Errorf("%+v", f)
	}
	if f := report.Of("trust-anchor"); f.Result != doctor.Skip {
		t.Errorf("%+v", f)
	}
}
