package exactjson_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/exactjson"
)

// Kubernetes and clouds ignore a member in other letters. A reader that does
// not sees another document than they do.
func TestMemberNamesAreComparedWhole(t *testing.T) {
	const document = `{"issuer":"right","ISSUER":"wrong","iſſuer":"wrong","inner":{"Name":"wrong"},"list":[{"NAME":"wrong"}]}`
	var got struct {
		Issuer string `json:"issuer"`
		Inner  struct {
			Name string `json:"name"`
		} `json:"inner"`
		List []struct {
			Name string `json:"name"`
		} `json:"list"`
	}
	if err := exactjson.Unmarshal([]byte(document), &got); err != nil {
		t.Fatal(err)
	}
	if got.Issuer != "right" || got.Inner.Name != "" || len(got.List) != 1 || got.List[0].Name != "" {
		t.Errorf("got %+v", got)
	}
	o, err := exactjson.ParseObject([]byte(document))
	if err != nil || o.Text("issuer") != "right" || o.Text("Issuer") != "" || o.Object("inner").Text("name") != "" {
		t.Errorf("got %v, %v", o, err)
	}
}

func TestObject(t *testing.T) {
	o,
		err := exactjson.ParseObject(
		[]byte(`{"text":"a","number":60,"quoted":"60","word":"soon","zero":0,"huge":1e999,"null":null,` +
			`"empty":"","list":["a","b"],"mixed":["a",1],"object":{"text":"b"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"number": 60, "quoted": 60, "word": -1, "zero": -1, "huge": math.Inf(1),
		"null": 0, "missing": 0, "empty": 0} {
		if got := o.Seconds(name); got != want {
			t.Errorf("seconds of %q: got %v, want %v", name, got, want)
		}
	}
	if !slices.Equal(o.Texts("list"), []string{"a", "b"}) || o.Texts("mixed") != nil || o.Texts("text") != nil {
		t.Errorf("lists: %q, %q, %q", o.Texts("list"), o.Texts("mixed"), o.Texts("text"))
	}
	if o.Object("object").Text("text") != "b" || o.Object("text") != nil || o.Object("missing").Text("text") != "" ||
		o.Text("number") != "" {
		t.Error("a member is read as another kind")
	}
	if o.Has("null") || o.Has("empty") || o.Has("missing") || !o.Has("zero") || !o.Has("object") {
		t.Error("an empty member counts, or a full one does not")
	}
	for _, body := range []string{"", "null", "[]", `"s3cret"`, `{"text":"s3cret`} {
		if got, err := exactjson.ParseObject([]byte(body)); err == nil || got != nil ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got %v, %v", body, got, err)
		}
	}
	if err := exactjson.Unmarshal([]byte(`{`), &json.RawMessage{}); err == nil {
		t.Error("half an object is accepted")
	}
}
