package document

import (
	"reflect"
	"strings"
	"testing"
)

const text = `# Page

## Run it, twice

1. A list:

   ~~~sh
   # no heading
   one --a \
     --b

   two
   ~~~

### Deeper

| name | value |
|---|---|
| a, b | 1 |
|  | 2 |

~~~yaml
a: 1
~~~

## Run it, twice
| other |
|---|
| c |
`

// A page is read as GitHub shows it.
func TestPage(t *testing.T) {
	page := Page{"page", strings.ReplaceAll(text, "~~~", "```"), t}
	section := page.Section("Run it, twice")
	for name, row := range map[string]struct{ got, want any }{
		"blocks of a section": {section.Blocks(),
			[]Block{{"", "sh", "# no heading\none --a \\\n  --b\n\ntwo\n"}, {"", "yaml", "a: 1\n"}}},
		"heading of a block": {page.Blocks("yaml"), []Block{{"Run it, twice", "yaml", "a: 1\n"}}},
		"block by its text":  {page.Block("yaml", "a:"), "a: 1\n"},
		"commands":           {section.Commands(), []string{"# no heading", "one --a   --b", "two"}},
		"deeper section":     {len(page.Section("Deeper").Blocks()), 1},
		"rows":               {page.Rows("name"), [][]string{{"a, b", "1 2"}}},
		"rows of one column": {page.Rows("other"), [][]string{{"c"}}},
		"names":              {Names("`a`, `b c` and\n```\n`d"), []string{"a", "b c"}},
		"anchors":            {page.Anchors(), []string{"page", "run-it-twice", "deeper", "run-it-twice-1"}},
		"example values":     {Replace(t, "a b a", "a", "c"), "c b c"},
	} {
		t.Run(name, func(t *testing.T) {
			if !reflect.DeepEqual(row.got, row.want) {
				t.Errorf("got %q, want %q", row.got, row.want)
			}
		})
	}
}
