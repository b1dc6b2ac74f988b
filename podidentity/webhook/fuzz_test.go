package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// canonical decodes and encodes a document, because the API server sends no key
// twice.
func canonical(raw []byte) (string, bool) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return "", false
	}
	encoded, err := json.Marshal(value)
	return string(encoded), err == nil
}

// Every pod gets an answer. A patch applies, and a second call changes nothing.
func FuzzPod(f *testing.F) {
	for _, pod := range []string{
		`{"spec":{"containers":[{"name":"a"}]}}`,
		`{"spec":{"containers":[{"name":"a","env":null}],"initContainers":[{"name":"i","env":[{"name":"AWS_PROFILE"}]}],"volumes":[{"name":"iam-credentials-token"}]}}`,
		`{"metadata":{"annotations":{"iam.aws.k8s.io/redirect":"true","iam.aws.k8s.io/skip-containers":"a"}},"spec":{"containers":[{"name":"a"},{"name":"a","env":[{"name":"AWS_CONTAINER_AUTHORIZATION_TOKEN"}]}],"volumes":[{}]}}`,
		`{"Spec":{"Containers":[{"Name":"a"}]},"spec":null}`,
		`{"spec":{"serviceAccountName":"default","hostNetwork":true,"os":{"name":"windows"},"containers":[null]}}`,
		`{"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"iam-credentials-redirect","args":["redirect"]},{"name":"iam-credentials-proxy","env":[{"name":"AWS_CONTAINER_AUTHORIZATION_TOKEN","value":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}],"startupProbe":{},"restartPolicy":"Always"}]}}`,
	} {
		f.Add([]byte(pod))
	}
	h := newHandler(f, options(bind("b", "default", "a", "i")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		pod, ok := canonical(raw)
		if !ok {
			return
		}
		if admit(t, h, pod).Allowed {
			inject(t, h, pod)
		}
	})
}

// pieces makes pods from the values that matter to the webhook, in places where
// they fit and where they do not.
type pieces struct{ *rand.Rand }

func (p pieces) pick(values ...string) string { return values[p.IntN(len(values))] }

func (p pieces) list(element func() string) string {
	n := p.IntN(6)
	if n == 5 {
		return "null"
	}
	elements := make([]string, min(n, 3))
	for i := range elements {
		elements[i] = element()
	}
	return "[" + strings.Join(elements, ",") + "]"
}

func (p pieces) variable() string {
	return p.pick("null", "{}", fmt.Sprintf(`{"name":%q,%s}`,
		p.pick(fullURI, secret, relative, "AWS_PROFILE", "A"),
		p.pick(`"value":"http://127.0.0.1:2020/v1/credentials"`, `"value":"x"`, `"valueFrom":{}`)))
}

func (p pieces) container() string {
	return p.pick(`{"name":"iam-credentials-redirect","command":["/ko-app/iam-credentials-pod"],"args":["redirect"]}`,
		fmt.Sprintf(
			`{"name":"iam-credentials-proxy","command":["/ko-app/iam-credentials-pod"],"args":["proxy","--server=https://iam-credentials-provider.iam-system.svc:8443",`+
				`"--token-file=/var/run/secrets/iam.aws.k8s.io/token","--listen=%s"],"restartPolicy":"Always","startupProbe":%s,`+
				`"env":[{"name":"AWS_CONTAINER_AUTHORIZATION_TOKEN","value":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}]}`,
			p.pick("127.0.0.1:2020", "169.254.170.2:80"), p.pick("{}", "{}", "null")),
		p.application(), p.application(), p.application(), p.application(), p.pick("null", `{"name":""}`, p.application()))
}

func (p pieces) application() string {
	return fmt.Sprintf(`{"name":%q%s}`, p.pick("a", "a", "b", "c", "d"), p.pick("", "", `,"env":`+p.list(p.variable)))
}

func (p pieces) volume() string {
	return p.pick(`{"name":"v"}`, "null", fmt.Sprintf(`{"name":"iam-credentials-token",%s}`, p.pick(`"emptyDir":{}`,
		`"projected":{"sources":[{"serviceAccountToken":{"path":"token","audience":"iam.aws.k8s.io"}}]}`,
		`"projected":{"sources":[{}]}`, `"projected":null`)))
}

func (p pieces) pod() string {
	fields := []string{`"containers":` +
		p.pick(p.list(p.container), "["+p.application()+"]", "["+p.application()+","+p.application()+"]")}
	if p.IntN(2) == 0 {
		fields = append(fields, `"initContainers":`+p.list(p.container))
	}
	if p.IntN(2) == 0 {
		fields = append(fields, `"volumes":`+p.list(p.volume))
	}
	return fmt.Sprintf(
		`{"metadata":{"annotations":{"iam.aws.k8s.io/redirect":%q,"iam.aws.k8s.io/skip-containers":%q}},"spec":{%s}}`,
		p.pick("true", "false"), p.pick("", "a", "a,b,,"), strings.Join(fields, ","))
}

func TestPodsOfRandomPieces(t *testing.T) {
	h := newHandler(t, options(bind("b", "default", "a", "b", "c")))
	counts := map[bool]int{}
	for seed := range uint64(5000) {
		pod := pieces{rand.New(rand.NewPCG(seed, 0))}.pod()
		allowed := admit(t, h, pod).Allowed
		counts[allowed]++
		if allowed {
			inject(t, h, pod)
		}
	}
	if counts[true] < 1000 || counts[false] < 500 {
		t.Errorf("%d admitted, %d denied", counts[true], counts[false])
	}
}
