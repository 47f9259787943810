SELECT U&'a;' UESCAPE '"'; SELECT 2
SELECT 1$$a;b$$; SELECT 2
SELECT $1$$a;b$$; SELECT 2
SELECT 1.$$a;b$$; SELECT 2
SELECT (1; SELECT 2)
SELECT 1); SELECT 2
SELECT 'unterminated; SELECT 2
SELECT "unterminated; SELECT 2
SELECT $$unterminated; SELECT 2
SELECT $a$unterminated$b$; SELECT 2
SELECT E'unterminated\'; SELECT 2
/* unterminated; SELECT 2
/* unterminated /* nested */ SELECT 2
SELECT U&'unterminated; SELECT 2
SELECT "" ; SELECT 2
selec 1; SELECT 2
SELECT 1 SELECT 2; SELECT 3
select	1;select$1 
select2; select
SELECT `a;b`; SELECT 1
SELECT a \ b; SELECT 1
SELECT {a;b}; SELECT 1
SELECT a?b; SELECT :a; SELECT 1
(
((SELECT
EXPLAIN (
SELECT B'1''0'; SELECT 2
