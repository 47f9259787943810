SELECT 'a' -- comment; with ' quote⏎ 'b;c'; SELECT 2
SELECT 'a'⏎-- comment⏎-- another⏎ 'b''c;d'; SELECT 2
SELECT E'a' -- x⏎⏎	'b\';c'; SELECT 2
SELECT 1
SELECT 1; SELECT 2;; SELECT 3;
SELECT 'a;b'; SELECT $$c;d$$; SELECT E'e\';f'; SELECT U&'g;\0041'; SELECT "h;" FROM (SELECT 1 AS "h;") s
SELECT 'a' -- c;⏎'b;'; SELECT 2 -- d;
SELECT 'a'⏎'b;c' 	-- ' "⏎⏎-- $$⏎ 'd'; SELECT 2
SELECT 'it''s; one'; SELECT 'back\'; SELECT E'back\\';SELECT 2
SELECT E'a\''⏎'b\';c'; SELECT 'a'⏎'b\'; SELECT 2
SELECT U&'a!;0041' UESCAPE ';'; SELECT U&'a' UESCAPE '!'
SELECT B'01'⏎'10'; SELECT X'0f'⏎'ab'; SELECT N'a;b'; SELECT n'c\'
SELECT $a$ $ab$ ; $a$; SELECT $a$ $a ; $a$; SELECT $a$$;$a$; SELECT $a$$a$; SELECT $é$;$é$
SELECT 1 AS a$$b; SELECT 1 AS a$$c$$; SELECT 2
/* a /* b; */ c; */ SELECT 1; /*/ ; */ SELECT 2; /*/*/ ; */ ; */ SELECT 3; /* // /* ** */ ; **/ SELECT 4
SELECT 2 +-- c;⏎ 3; SELECT 2 +/* c; */ 3; SELECT 2*/* c; */3; SELECT 1 <--c;⏎ 3
SELECT 1--2;⏎; SELECT 3- -2; SELECT 2*-3; SELECT 4<-1; SELECT 4=-1; SELECT 4<>+1
SELECT 1.5e3, .5e+1, 1.e1, 1.; SELECT 2
SELECT 1⏎;⏎-- x;⏎;SELECT 2
SELECT (1), ';', (SELECT ';' || (';')); SELECT 2
SELECT 'é;ü' AS "ñ;"; SELECT '日本;語'
SELECT 1;SELECT 2
