-- Seventy counts in the form of JOB-light: Kipf and others, "Learned Cardinalities" (CIDR 2019), over tables of IMDb.

-- 1
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info_idx mi_idx WHERE t.id=mc.movie_id AND t.id=mi_idx.movie_id AND mi_idx.info_type_id=112 AND mc.company_type_id=2;

-- 2
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info_idx mi_idx WHERE t.id=mc.movie_id AND t.id=mi_idx.movie_id AND mi_idx.info_type_id=113 AND mc.company_type_id=2 AND t.production_year>2005 AND t.production_year<2010;

-- 3
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info_idx mi_idx WHERE t.id=mc.movie_id AND t.id=mi_idx.movie_id AND mi_idx.info_type_id=112 AND mc.company_type_id=2 AND t.production_year>2010;

-- 4
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info_idx mi_idx WHERE t.id=mc.movie_id AND t.id=mi_idx.movie_id AND mi_idx.info_type_id=113 AND mc.company_type_id=2 AND t.production_year>2000;

-- 5
SELECT COUNT(*) FROM movie_companies mc,title t,movie_keyword mk WHERE t.id=mc.movie_id AND t.id=mk.movie_id AND mk.keyword_id=117;

-- 6
SELECT COUNT(*) FROM movie_companies mc,title t,movie_keyword mk WHERE t.id=mc.movie_id AND t.id=mk.movie_id AND mk.keyword_id=117 AND t.production_year>2005;

-- 7
SELECT COUNT(*) FROM movie_companies mc,title t,movie_keyword mk WHERE t.id=mc.movie_id AND t.id=mk.movie_id AND t.production_year>2010 AND mk.keyword_id=8200 AND mc.company_type_id=1;

-- 8
SELECT COUNT(*) FROM movie_info mi,title t,movie_keyword mk WHERE t.id=mi.movie_id AND t.id=mk.movie_id AND t.production_year>1990;

-- 9
SELECT COUNT(*) FROM movie_info mi,title t,movie_keyword mk WHERE t.id=mi.movie_id AND t.id=mk.movie_id AND t.production_year>2005;

-- 10
SELECT COUNT(*) FROM movie_info mi,title t,movie_keyword mk WHERE t.id=mi.movie_id AND t.id=mk.movie_id AND mi.info_type_id=8 AND t.production_year>2010;

-- 11
SELECT COUNT(*) FROM movie_info mi,title t,movie_keyword mk WHERE t.id=mi.movie_id AND t.id=mk.movie_id AND mi.info_type_id=105 AND mk.keyword_id=398;

-- 12
SELECT COUNT(*) FROM movie_info_idx mi_idx,title t,movie_keyword mk WHERE t.id=mi_idx.movie_id AND t.id=mk.movie_id AND mi_idx.info_type_id=101 AND t.production_year>2010;

-- 13
SELECT COUNT(*) FROM movie_info_idx mi_idx,title t,movie_keyword mk WHERE t.id=mi_idx.movie_id AND t.id=mk.movie_id AND mi_idx.info_type_id=99 AND mk.keyword_id=117;

-- 14
SELECT COUNT(*) FROM movie_info_idx mi_idx,title t,movie_keyword mk WHERE t.id=mi_idx.movie_id AND t.id=mk.movie_id AND t.production_year>2005 AND mi_idx.info_type_id=101 AND mk.keyword_id=398;

-- 15
SELECT COUNT(*) FROM movie_info mi,title t,movie_info_idx mi_idx WHERE t.id=mi.movie_id AND t.id=mi_idx.movie_id AND mi.info_type_id=3 AND mi_idx.info_type_id=100;

-- 16
SELECT COUNT(*) FROM movie_info mi,title t,movie_info_idx mi_idx WHERE t.id=mi.movie_id AND t.id=mi_idx.movie_id AND mi.info_type_id=16 AND mi_idx.info_type_id=101 AND t.production_year>2000;

-- 17
SELECT COUNT(*) FROM movie_info mi,title t,movie_info_idx mi_idx WHERE t.id=mi.movie_id AND t.id=mi_idx.movie_id AND t.kind_id=1 AND mi.info_type_id=8 AND mi_idx.info_type_id=101 AND t.production_year>1980 AND t.production_year<1995;

-- 18
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info_idx mi_idx,movie_info mi WHERE t.id=mc.movie_id AND t.id=mi_idx.movie_id AND t.id=mi.movie_id AND t.kind_id=1 AND mc.company_type_id=2 AND mi.info_type_id=16 AND mi_idx.info_type_id=100;

-- 19
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info_idx mi_idx,movie_info mi WHERE t.id=mc.movie_id AND t.id=mi_idx.movie_id AND t.id=mi.movie_id AND t.production_year>2000 AND mc.company_type_id=2 AND mi.info_type_id=8 AND mi_idx.info_type_id=101;

-- 20
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info_idx mi_idx,movie_info mi WHERE t.id=mc.movie_id AND t.id=mi_idx.movie_id AND t.id=mi.movie_id AND mi_idx.info_type_id=112 AND mi.info_type_id=105 AND mc.company_type_id=2 AND t.production_year>1990 AND t.production_year<2000;

-- 21
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info mi WHERE t.id=mc.movie_id AND t.id=mi.movie_id AND mi.info_type_id=16 AND t.production_year>2000;

-- 22
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info mi WHERE t.id=mc.movie_id AND t.id=mi.movie_id AND mi.info_type_id=16 AND t.production_year>2005 AND t.production_year<2010;

-- 23
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info mi WHERE t.id=mc.movie_id AND t.id=mi.movie_id AND mi.info_type_id=3 AND mc.company_type_id=1;

-- 24
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info mi,movie_keyword mk WHERE t.id=mc.movie_id AND t.id=mi.movie_id AND t.id=mk.movie_id AND mi.info_type_id=16 AND t.production_year>2000 AND t.production_year<2010 AND mc.company_type_id=2;

-- 25
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info mi,movie_keyword mk WHERE t.id=mc.movie_id AND t.id=mi.movie_id AND t.id=mk.movie_id AND t.production_year>1990 AND mi.info_type_id=3 AND mk.keyword_id=117;

-- 26
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info mi,movie_keyword mk WHERE t.id=mc.movie_id AND t.id=mi.movie_id AND t.id=mk.movie_id AND t.kind_id=1 AND mi.info_type_id=8 AND mc.company_type_id=1;

-- 27
SELECT COUNT(*) FROM movie_companies mc,title t,cast_info ci WHERE t.id=mc.movie_id AND t.id=ci.movie_id AND ci.role_id=1 AND t.production_year>2005;

-- 28
SELECT COUNT(*) FROM movie_companies mc,title t,cast_info ci WHERE t.id=mc.movie_id AND t.id=ci.movie_id AND ci.role_id=2 AND mc.company_id=22956;

-- 29
SELECT COUNT(*) FROM movie_companies mc,title t,cast_info ci WHERE t.id=mc.movie_id AND t.id=ci.movie_id AND ci.role_id=4 AND mc.company_type_id=2 AND t.production_year<1980;

-- 30
SELECT COUNT(*) FROM movie_companies mc,title t,cast_info ci WHERE t.id=mc.movie_id AND t.id=ci.movie_id AND t.kind_id=7 AND ci.role_id=2 AND t.production_year=2008;

-- 31
SELECT COUNT(*) FROM cast_info ci,title t,movie_keyword mk WHERE t.id=ci.movie_id AND t.id=mk.movie_id AND ci.role_id=8 AND mk.keyword_id=117;

-- 32
SELECT COUNT(*) FROM cast_info ci,title t,movie_keyword mk WHERE t.id=ci.movie_id AND t.id=mk.movie_id AND t.production_year>2014 AND ci.role_id=1;

-- 33
SELECT COUNT(*) FROM cast_info ci,title t,movie_keyword mk WHERE t.id=ci.movie_id AND t.id=mk.movie_id AND t.production_year>2000 AND mk.keyword_id=8200;

-- 34
SELECT COUNT(*) FROM cast_info ci,title t,movie_keyword mk WHERE t.id=ci.movie_id AND t.id=mk.movie_id AND t.production_year>1950 AND t.production_year<2000 AND mk.keyword_id=398;

-- 35
SELECT COUNT(*) FROM cast_info ci,title t,movie_info mi WHERE t.id=ci.movie_id AND t.id=mi.movie_id AND ci.role_id=4 AND mi.info_type_id=16;

-- 36
SELECT COUNT(*) FROM cast_info ci,title t,movie_info mi WHERE t.id=ci.movie_id AND t.id=mi.movie_id AND ci.role_id=2 AND mi.info_type_id=3 AND t.production_year>2005;

-- 37
SELECT COUNT(*) FROM cast_info ci,title t,movie_info mi WHERE t.id=ci.movie_id AND t.id=mi.movie_id AND t.kind_id=1 AND ci.role_id=10 AND mi.info_type_id=8;

-- 38
SELECT COUNT(*) FROM cast_info ci,title t,movie_info mi WHERE t.id=ci.movie_id AND t.id=mi.movie_id AND t.production_year>=2000 AND t.production_year<=2005 AND ci.role_id=1 AND mi.info_type_id=98;

-- 39
SELECT COUNT(*) FROM cast_info ci,title t,movie_info_idx mi_idx WHERE t.id=ci.movie_id AND t.id=mi_idx.movie_id AND ci.role_id=2 AND mi_idx.info_type_id=101;

-- 40
SELECT COUNT(*) FROM cast_info ci,title t,movie_info_idx mi_idx WHERE t.id=ci.movie_id AND t.id=mi_idx.movie_id AND t.kind_id=1 AND ci.role_id=4 AND mi_idx.info_type_id=113;

-- 41
SELECT COUNT(*) FROM cast_info ci,title t,movie_info_idx mi_idx WHERE t.id=ci.movie_id AND t.id=mi_idx.movie_id AND t.production_year>2010 AND mi_idx.info_type_id=99 AND ci.role_id=1;

-- 42
SELECT COUNT(*) FROM movie_keyword mk,title t WHERE t.id=mk.movie_id AND t.production_year>2005 AND mk.keyword_id=398;

-- 43
SELECT COUNT(*) FROM movie_keyword mk,title t WHERE t.id=mk.movie_id AND t.production_year>2010 AND mk.keyword_id=8200;

-- 44
SELECT COUNT(*) FROM movie_keyword mk,title t WHERE t.id=mk.movie_id AND mk.keyword_id=117;

-- 45
SELECT COUNT(*) FROM movie_keyword mk,title t WHERE t.id=mk.movie_id AND t.kind_id=1 AND t.production_year>2000 AND mk.keyword_id=117;

-- 46
SELECT COUNT(*) FROM movie_companies mc,title t WHERE t.id=mc.movie_id AND mc.company_id=22956;

-- 47
SELECT COUNT(*) FROM movie_companies mc,title t WHERE t.id=mc.movie_id AND mc.company_type_id=1 AND t.production_year>2005;

-- 48
SELECT COUNT(*) FROM movie_companies mc,title t WHERE t.id=mc.movie_id AND mc.company_type_id=2 AND t.kind_id=7;

-- 49
SELECT COUNT(*) FROM movie_info mi,title t WHERE t.id=mi.movie_id AND mi.info_type_id=98;

-- 50
SELECT COUNT(*) FROM movie_info mi,title t WHERE t.id=mi.movie_id AND mi.info_type_id=16 AND t.production_year>2000;

-- 51
SELECT COUNT(*) FROM movie_info mi,title t WHERE t.id=mi.movie_id AND t.kind_id=7 AND mi.info_type_id=3 AND t.production_year<1960;

-- 52
SELECT COUNT(*) FROM movie_info_idx mi_idx,title t WHERE t.id=mi_idx.movie_id AND mi_idx.info_type_id=101;

-- 53
SELECT COUNT(*) FROM movie_info_idx mi_idx,title t WHERE t.id=mi_idx.movie_id AND mi_idx.info_type_id=100 AND t.production_year>1990;

-- 54
SELECT COUNT(*) FROM movie_info_idx mi_idx,title t WHERE t.id=mi_idx.movie_id AND t.kind_id=1 AND mi_idx.info_type_id=113 AND t.production_year>2005 AND t.production_year<2008;

-- 55
SELECT COUNT(*) FROM cast_info ci,title t WHERE t.id=ci.movie_id AND ci.role_id=2 AND t.production_year>1980 AND t.production_year<1995;

-- 56
SELECT COUNT(*) FROM cast_info ci,title t WHERE t.id=ci.movie_id AND ci.role_id=8;

-- 57
SELECT COUNT(*) FROM cast_info ci,title t WHERE t.id=ci.movie_id AND t.kind_id=1 AND ci.role_id=1 AND t.production_year>2005;

-- 58
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info mi,movie_info_idx mi_idx,movie_keyword mk WHERE t.id=mc.movie_id AND t.id=mi.movie_id AND t.id=mi_idx.movie_id AND t.id=mk.movie_id AND t.production_year>2000 AND mi.info_type_id=8 AND mi_idx.info_type_id=101;

-- 59
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info mi,movie_info_idx mi_idx,movie_keyword mk WHERE t.id=mc.movie_id AND t.id=mi.movie_id AND t.id=mi_idx.movie_id AND t.id=mk.movie_id AND mi.info_type_id=16 AND mi_idx.info_type_id=100 AND mc.company_type_id=2 AND t.kind_id=1;

-- 60
SELECT COUNT(*) FROM movie_companies mc,title t,movie_info mi,movie_info_idx mi_idx,movie_keyword mk WHERE t.id=mc.movie_id AND t.id=mi.movie_id AND t.id=mi_idx.movie_id AND t.id=mk.movie_id AND t.production_year>2005 AND t.production_year<2010 AND mk.keyword_id=117 AND mi_idx.info_type_id=99;

-- 61
SELECT COUNT(*) FROM cast_info ci,title t,movie_info mi,movie_info_idx mi_idx WHERE t.id=ci.movie_id AND t.id=mi.movie_id AND t.id=mi_idx.movie_id AND ci.role_id=2 AND mi.info_type_id=3 AND mi_idx.info_type_id=100;

-- 62
SELECT COUNT(*) FROM cast_info ci,title t,movie_info mi,movie_info_idx mi_idx WHERE t.id=ci.movie_id AND t.id=mi.movie_id AND t.id=mi_idx.movie_id AND t.production_year>2010 AND ci.role_id=4 AND mi.info_type_id=16 AND mi_idx.info_type_id=101;

-- 63
SELECT COUNT(*) FROM cast_info ci,title t,movie_companies mc,movie_keyword mk WHERE t.id=ci.movie_id AND t.id=mc.movie_id AND t.id=mk.movie_id AND mk.keyword_id=8200 AND ci.role_id=1 AND mc.company_type_id=2;

-- 64
SELECT COUNT(*) FROM cast_info ci,title t,movie_companies mc,movie_keyword mk WHERE t.id=ci.movie_id AND t.id=mc.movie_id AND t.id=mk.movie_id AND t.production_year>1990 AND t.production_year<2005 AND mk.keyword_id=117;

-- 65
SELECT COUNT(*) FROM cast_info ci,title t,movie_companies mc,movie_info mi WHERE t.id=ci.movie_id AND t.id=mc.movie_id AND t.id=mi.movie_id AND ci.role_id=2 AND mi.info_type_id=16 AND mc.company_type_id=1 AND t.production_year>2000;

-- 66
SELECT COUNT(*) FROM cast_info ci,title t,movie_companies mc,movie_info mi WHERE t.id=ci.movie_id AND t.id=mc.movie_id AND t.id=mi.movie_id AND t.kind_id=1 AND mi.info_type_id=3 AND ci.role_id=1;

-- 67
SELECT COUNT(*) FROM cast_info ci,title t,movie_info_idx mi_idx,movie_keyword mk WHERE t.id=ci.movie_id AND t.id=mi_idx.movie_id AND t.id=mk.movie_id AND mi_idx.info_type_id=101 AND mk.keyword_id=398 AND t.production_year>2000;

-- 68
SELECT COUNT(*) FROM cast_info ci,title t,movie_companies mc,movie_info mi,movie_keyword mk WHERE t.id=ci.movie_id AND t.id=mc.movie_id AND t.id=mi.movie_id AND t.id=mk.movie_id AND t.kind_id=1 AND mi.info_type_id=8 AND mk.keyword_id=117;

-- 69
SELECT COUNT(*) FROM movie_info mi,title t,movie_info_idx mi_idx,movie_keyword mk WHERE t.id=mi.movie_id AND t.id=mi_idx.movie_id AND t.id=mk.movie_id AND mi.info_type_id=3 AND mi_idx.info_type_id=101 AND mk.keyword_id=8200;

-- 70
SELECT COUNT(*) FROM movie_info mi,title t,movie_info_idx mi_idx,movie_keyword mk WHERE t.id=mi.movie_id AND t.id=mi_idx.movie_id AND t.id=mk.movie_id AND t.kind_id=1 AND mi.info_type_id=16 AND mi_idx.info_type_id=100 AND t.production_year>2010;
