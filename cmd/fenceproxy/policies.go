package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// policiesFlag is the name of the flag with the rules.
const policiesFlag = "policies"

// policyFlags say what holds for the sessions of which role and database.
type policyFlags struct {
	untagged choice
	fencing  choice
	rules    policyRules
}

func newPolicyFlags() policyFlags {
	var standard proxy.Policy
	return policyFlags{
		untagged: choice{standard.UntaggedWrites.String(), []string{
			proxy.AllowUntagged.String(), proxy.ObserveUntagged.String(), proxy.RejectUntagged.String()}},
		fencing: choice{standard.Fencing.String(), []string{
			proxy.FenceAccepted.String(), proxy.FenceIssued.String(), proxy.FenceLive.String()}},
	}
}

func (p *policyFlags) add(flags *pflag.FlagSet) {
	flags.Var(&p.untagged, "untagged-writes", "what becomes of writes without a tag, where no policy says otherwise: observe logs and counts them, reject refuses them")
	flags.Var(&p.fencing, "fencing", "what makes a token stale, where no policy says otherwise: a higher one that was accepted, one that etcd has issued, or a lock that isn't live")
	flags.Var(&p.rules, policiesFlag, "a YAML list of rules for databases and roles, of which the first that fits a session counts, such as '[{role: migrator, untagged_writes: allow}]'")
}

// policies are the rules, with the flags' policy for what they leave open.
func (p *policyFlags) policies() (proxy.Policies, error) {
	standard, err := policyRule{untagged: p.untagged.value, fencing: p.fencing.value}.policy(proxy.Policy{})
	if err != nil {
		return proxy.Policies{}, err // not reached: the flags know their words
	}
	all := proxy.Policies{Default: standard}
	for _, r := range p.rules.rules {
		policy, err := r.policy(standard)
		if err != nil {
			return proxy.Policies{}, err // not reached: setNode has looked
		}
		all.Rules = append(all.Rules, proxy.Rule{Database: r.database, Role: r.role, Policy: policy})
	}
	return all, nil
}

// A policyRule is a rule as it is written; "" is what it leaves open.
type policyRule struct{ database, role, untagged, fencing string }

// field returns where the value of a key goes, nil if there is no such key.
func (r *policyRule) field(key string) *string {
	switch key {
	case "database":
		return &r.database
	case "role":
		return &r.role
	case "untagged_writes":
		return &r.untagged
	case "fencing":
		return &r.fencing
	}
	return nil
}

// policy is what the rule says, with the standard for what it leaves open.
func (r policyRule) policy(standard proxy.Policy) (policy proxy.Policy, err error) {
	policy = standard
	if r.untagged != "" {
		if policy.UntaggedWrites, err = proxy.ParseUntaggedWrites(r.untagged); err != nil {
			return policy, fmt.Errorf("untagged_writes: %w", err)
		}
	}
	if r.fencing != "" {
		if policy.Fencing, err = proxy.ParseFencing(r.fencing); err != nil {
			return policy, fmt.Errorf("fencing: %w", err)
		}
	}
	return policy, nil
}

// checkPolicy refuses a value that a key of a rule doesn't take.
func checkPolicy(key, value string) error {
	var r policyRule
	*r.field(key) = value
	if _, err := r.policy(proxy.Policy{}); err != nil {
		return err
	}
	if err := proxy.CheckPattern(cmp.Or(r.database, r.role)); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// check refuses a rule that can't be meant, behind others.
func (r policyRule) check(others []policyRule) error {
	same := func(before policyRule) bool { return before.database == r.database && before.role == r.role }
	switch {
	case r.untagged == "" && r.fencing == "":
		return errors.New("it sets neither untagged_writes nor fencing")
	case r.database == "" && r.role == "":
		return errors.New("it names neither a database nor a role; --untagged-writes and --fencing say what holds for all")
	}
	if before := slices.IndexFunc(others, same); before >= 0 {
		return fmt.Errorf("it is never reached: rule %d is for the same sessions", before+1)
	}
	return nil
}

// policyRules are the rules of --policies: YAML on the command line and in the
// environment, as in the file.
type policyRules struct {
	rules []policyRule
	text  string
}

func (p *policyRules) Set(text string) error {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return errors.New("a list of rules is expected, such as [{role: migrator, untagged_writes: allow}]")
	}
	var found faults
	for _, wrong := range p.setNode(doc.Content[0]) {
		found.add(wrong.error)
	}
	return found.err()
}

// A ruleFault is what is wrong with a rule, which it names, and the line of that.
type ruleFault struct {
	line int
	error
}

// setNode is Set from a file. It tells all that is wrong, and takes no rule then.
func (p *policyRules) setNode(list *yaml.Node) (wrong []ruleFault) {
	if list.Kind != yaml.SequenceNode {
		return []ruleFault{{list.Line, errors.New("a list of rules is expected, such as [{role: migrator, untagged_writes: allow}]")}}
	}
	var rules []policyRule
	for i, node := range list.Content {
		r, faults := readRule(node)
		if len(faults) == 0 {
			if err := r.check(rules); err != nil {
				faults = []ruleFault{{node.Line, err}}
			}
		}
		for _, f := range faults {
			wrong = append(wrong, ruleFault{f.line, fmt.Errorf("rule %d: %w", i+1, f.error)})
		}
		rules = append(rules, r)
	}
	if len(wrong) > 0 {
		return wrong
	}
	list.Style = yaml.FlowStyle // in one line
	text, err := yaml.Marshal(list)
	if err != nil {
		return []ruleFault{{list.Line, fmt.Errorf("write the rules: %w", err)}}
	}
	p.rules, p.text = rules, strings.Join(strings.Fields(string(text)), " ")
	return nil
}

// readRule reads one rule, whose keys and values are known words only.
func readRule(node *yaml.Node) (r policyRule, wrong []ruleFault) {
	if node.Kind != yaml.MappingNode {
		return r, []ruleFault{{node.Line, errors.New("a mapping is expected, such as {role: migrator, untagged_writes: allow}")}}
	}
	known := []string{"database", "role", "untagged_writes", "fencing"}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := r.field(key.Value)
		var err error
		switch {
		case field == nil:
			err = fmt.Errorf("%s: no such setting%s", key.Value, didYouMean(key.Value, known, asItIs))
		case *field != "":
			err = fmt.Errorf("%s: stands there twice", key.Value)
		case value.Kind != yaml.ScalarNode || value.Tag == "!!null" || value.Value == "":
			err = fmt.Errorf("%s: a value is expected", key.Value)
		default:
			*field = value.Value
			err = checkPolicy(key.Value, value.Value)
		}
		if err != nil {
			wrong = append(wrong, ruleFault{key.Line, err})
		}
	}
	return r, wrong
}

func (p *policyRules) String() string { return p.text }
func (*policyRules) Type() string     { return "list" }
