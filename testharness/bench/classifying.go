package main

import (
	"context"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// texts are typical statements, by the name of the contender whom each makes.
var texts = map[string]string{
	"SELECT by a key":  "SELECT id, status, total FROM orders WHERE id = $1",
	"UPDATE by a key":  "UPDATE orders SET status = 'paid', paid_at = now() WHERE id = $1 AND status = 'open'",
	"INSERT RETURNING": "INSERT INTO orders (customer_id, total, note) VALUES ($1, $2, $3) RETURNING id",
	"join": "SELECT o.id, o.total, count(l.id) AS lines FROM orders o JOIN lines l ON l.order_id = o.id " +
		"WHERE o.customer_id = $1 AND o.created_at > now() - interval '1 day' GROUP BY o.id ORDER BY o.id DESC LIMIT 20",
}

// classified are the contenders of the classifier.
func classified() (all []contender) {
	for _, name := range []string{"SELECT by a key", "UPDATE by a key", "INSERT RETURNING", "join"} {
		all = append(all, contender{name: name})
	}
	return all
}

// classifying measures how long the proxy takes to see what a statement is.
func classifying(ctx context.Context, _ *rig, o options, c contender) (sample, error) {
	const atATime = 1000
	s := nothing()
	text, dst := []byte(texts[c.name]), make([]sqlrewrite.Statement, 0, 4)
	n, began := 0, time.Now()
	for time.Since(began) < o.length() && ctx.Err() == nil {
		for range atATime {
			if _, err := sqlrewrite.Split(dst, text, sqlrewrite.Options{}); err != nil {
				return s, fmt.Errorf("classify %s: %w", c.name, err)
			}
		}
		n += atATime
	}
	took := time.Since(began)
	s[rate], s[cpu] = float64(n)/took.Seconds(), float64(took.Nanoseconds())/1000/float64(n)
	return s, nil
}
