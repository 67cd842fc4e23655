"""Handwritten pairs of SQL statements with equal results on every database of the recipe tptu."""

from collections.abc import Mapping, Sequence

_QUERIES: Mapping[str, Sequence[str]] = {
    "SELECT amount FROM orders WHERE number = 482": (
        "SELECT o.amount FROM orders AS o WHERE o.number = 482",
        "select amount from orders where number=482",
        "SELECT amount FROM orders WHERE 482 = number",
        "SELECT max(amount) FROM orders WHERE number = 482",
        "SELECT sum(amount) FROM orders WHERE number = 482",
        "SELECT amount AS result FROM orders WHERE number IN (482)",
        "SELECT DISTINCT amount FROM orders WHERE number = 482",
        "SELECT amount FROM (SELECT * FROM orders WHERE number = 482)",
        "SELECT amount FROM orders WHERE number BETWEEN 482 AND 482",
    ),
    "SELECT count(*) FROM orders WHERE person = 'Anna Berg'": (
        "SELECT count(number) FROM orders WHERE person = 'Anna Berg'",
        "SELECT count(1) FROM orders AS o WHERE o.person = 'Anna Berg'",
        "SELECT sum(person = 'Anna Berg') FROM orders",
        "SELECT count(DISTINCT number) FROM orders WHERE person LIKE 'Anna Berg'",
        "SELECT count(*) FROM orders JOIN people ON name = person WHERE name = 'Anna Berg'",
        "SELECT count(*) FROM people, orders WHERE name = person AND person = 'Anna Berg'",
        "SELECT n FROM (SELECT person, count(*) AS n FROM orders GROUP BY person) "
        "WHERE person = 'Anna Berg'",
        "SELECT count(*) FROM orders GROUP BY person HAVING person = 'Anna Berg'",
        "WITH hers AS (SELECT * FROM orders WHERE person = 'Anna Berg') SELECT count(*) FROM hers",
    ),
    "SELECT sum(amount) FROM orders WHERE person = 'Anna Berg'": (
        "SELECT total(amount) FROM orders WHERE person = 'Anna Berg'",
        "SELECT sum(o.amount) AS spent FROM orders o WHERE o.person = 'Anna Berg'",
        "SELECT sum(CASE WHEN person = 'Anna Berg' THEN amount ELSE 0 END) FROM orders",
        "SELECT sum(amount * (person = 'Anna Berg')) FROM orders",
        "SELECT sum(amount) FROM orders GROUP BY person HAVING person = 'Anna Berg'",
        "SELECT count(*) * avg(amount) FROM orders WHERE person = 'Anna Berg'",
        "SELECT sum(amount) FILTER (WHERE person = 'Anna Berg') FROM orders",
        "SELECT sum(amount) FROM people JOIN orders ON person = name WHERE name = 'Anna Berg'",
    ),
    "SELECT max(amount) FROM orders WHERE person = 'Anna Berg'": (
        "SELECT amount FROM orders WHERE person = 'Anna Berg' ORDER BY amount DESC LIMIT 1",
        "SELECT -min(-amount) FROM orders WHERE person = 'Anna Berg'",
        "SELECT max(o.amount) FROM orders o WHERE 'Anna Berg' = o.person",
        "SELECT DISTINCT amount FROM orders AS o WHERE person = 'Anna Berg' AND NOT EXISTS "
        "(SELECT 1 FROM orders AS p WHERE p.person = o.person AND p.amount > o.amount)",
        "SELECT max(amount) FROM orders GROUP BY person HAVING person = 'Anna Berg'",
        "SELECT max(CASE person WHEN 'Anna Berg' THEN amount END) FROM orders",
        "SELECT first_value(amount) OVER (ORDER BY amount DESC) FROM orders "
        "WHERE person = 'Anna Berg' LIMIT 1",
        "SELECT max(amount) FROM orders JOIN people ON name = person WHERE name = 'Anna Berg'",
    ),
    "SELECT count(*) FROM people WHERE company = 'Amber Mills'": (
        "SELECT count(name) FROM people WHERE company = 'Amber Mills'",
        "SELECT count(p.name) AS staff FROM people p WHERE p.company = 'Amber Mills'",
        "SELECT sum(company = 'Amber Mills') FROM people",
        "SELECT count(*) FROM people JOIN companies ON company = companies.name "
        "WHERE companies.name = 'Amber Mills'",
        "SELECT count(*) FROM companies AS c, people AS p WHERE p.company = c.name "
        "AND c.name = 'Amber Mills'",
        "SELECT count(DISTINCT name) FROM people WHERE company IN ('Amber Mills')",
        "SELECT count(*) FROM people GROUP BY company HAVING company = 'Amber Mills'",
        "SELECT (SELECT count(*) FROM people) - count(*) FROM people "
        "WHERE company <> 'Amber Mills'",
    ),
    "SELECT sum(amount) FROM orders JOIN people ON person = name WHERE company = 'Amber Mills'": (
        "SELECT sum(amount) FROM people JOIN orders ON name = person WHERE company = 'Amber Mills'",
        "SELECT sum(o.amount) FROM orders o, people p WHERE o.person = p.name "
        "AND p.company = 'Amber Mills'",
        "SELECT sum(amount) FROM orders WHERE person IN (SELECT name FROM people "
        "WHERE company = 'Amber Mills')",
        "SELECT sum(amount) FROM orders AS o WHERE EXISTS (SELECT 1 FROM people AS p "
        "WHERE p.name = o.person AND p.company = 'Amber Mills')",
        "SELECT sum(hers) FROM (SELECT sum(amount) AS hers FROM orders JOIN people "
        "ON name = person WHERE company = 'Amber Mills' GROUP BY person)",
        "WITH staff AS (SELECT name FROM people WHERE company = 'Amber Mills') "
        "SELECT sum(amount) FROM orders JOIN staff ON person = staff.name",
        "SELECT total(o.amount) FROM people AS p INNER JOIN orders AS o ON o.person = p.name "
        "JOIN companies AS c ON c.name = p.company WHERE c.name = 'Amber Mills'",
        "SELECT sum(amount) FROM orders LEFT JOIN people ON person = name "
        "WHERE company = 'Amber Mills'",
    ),
}
EQUIVALENT = [(one, other) for one, others in _QUERIES.items() for other in others]
