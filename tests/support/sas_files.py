"""Two files of SAS (.sas7bdat), written once by the package nbase-converter 0.0.6.

They hold the same 40 rows: with texts in UTF-8, and packed by runs in Windows-1252. No file that
SAS itself wrote is among the tests.
"""

from __future__ import annotations

import lzma
from base64 import b85decode

PLAIN = (
    "{Wp48S^xk9=GL@E0stWa8~^|S5YJf5;{X2y$6WvbY*w8@&hbk))GqVuUZg-QwrD0^?X<yj|Kxpxot2L<Q6=cgKzQsh"
    "wy1dtsp(3?XH41PiI)?+wGMG$i%+|Z_@P#|@OWNY(UaV}o$Ofz*E+*B*!|j@{c2x@EZ1tX4(_NbWqOXGkeP0D3%uQb"
    "JqViQ3o^4Dw}ezXN#)A@5818qYJWJ}#+)4`yOKKU2lu;`uzk@f+|V1W--j%9**j>zfo6KhT4r2`9E;BU7E0shqFi&>"
    "aM=2q=%!vSWI{`-WEv%x=SYtjy5FC{vZu=CzJH;yn_^ZxzTMx&s(&p>9JQ6Zw-Z2tzMpD_@sVP5wHP3=6<v2%j1-PP"
    ")5nG8GieBhsm?GxapX;?W@*mHYO!+$slptq$<fx4(y5l69ORcyQ)zOIERou(r5AFrk|*9_M?B{Qu+(%A&0L*Vc?1`N"
    ")OIcxrBC2jh%Q1w-h>ewB;pKD({SQ!AwJ~^)F)qDCfMdk<qIdlgbs?zP5?b0Wx;Os3`5qkOkp;+jc~Ybpb-k#qDF)5"
    "dPx`|hDWX5#73B?&`%Oq-XXpSbD|o<0ep;`a42x)H94iNmXzD;lyVzmbRvy5Y5<f4LUAO#P^pZy<FY7<T7oFZq->)w"
    "8CwM>C}dO{E+nn;Vtl;^QXkpmS*jSv#Wq3{5Q)W_==omAzrktcE+IiFqy2)X;cjdhiZl;*zT5wb^Q*nb7hR)oD^w+a"
    "WwNFWca#5zf?T=6fVku<Xc(<L?!{&`0+n&2_##qzNt!mO-_`&g91C|2UkM5^tsJ&NRYH&qSkt#8?qkv+yiqlayM$Pl"
    "qHF`?fT$HRLh52Mpil0AoM4a43Ak{dXXjy;r;6E>h6PV0_12HBrp5?ZBbOl!6=7}Z#DLX~Ws_+si$(Z)gPR|LT=QB9"
    "Ruf!T`?_~x_ld#H9};49>7|**_Hsy$P=3Z9e4jsB@6I7({HTNh2x`0qob0_c>4B_>?|LNS(1Rw^GcM4=a}TCEZclU6"
    "n3P2J2>TkUBg1Jxt7nY7V+1J;uHC@n^2@i?*;EUqbz#b~7ym9IO#UL3h%_ENg^BHmN)H_1pVd4X1oj)XV!AZT!i)T9"
    "2|<tc6=hvFF%khP4?^`{yY;0AuA5&yPM3G4>(%eS$s0y6EA8lZ=~tN<*gv<#YKMnF&zne95yeybdb_Gs!few)pZC54"
    "DE8@_#^eSu9>^7In;GFDxn)Qi&ari~M(hFW5KF@<&AeU=pu*eAJ_7Sf#d&1^xvIHUZaHKGF}XtO1jI-TCcFtr%U{|L"
    "s;)dW4oh?>;yz@$4_*2*^ixqV35?#AK40(Z)LjgfGa2{1JNc?nHck$y<#N=>74lL>xANi8uiN(hzNVt*<YIdt<^ub;"
    "@=vw2+8v?s8nd8gStPlKcB_#BiLi42%}@FAHF!D+4A2)bg>eb$s}wya|4IN)elL(`0G@7daTiP-144$qVz8;xV{TQ7"
    "FM9ZOfMtZD(dnm3U?SRd&n8&iN}g`q0q>R82}V(|w$A(R18-VtUEH*WII-rVWr2>&*_E+WZwWYZL2vaq|DTj+@X%@v"
    "NYY&fwXu%hwocDJN}(*E5N>ibD&At-FyjyRwEzGB5hlqNF!_|$00H9(fPf4DH$6=LvBYQl0ssI200dcD"
)
PACKED = (
    "{Wp48S^xk9=GL@E0stWa8~^|S5YJf5;{X2z&s_ijY*w8@&hbk))GqVuUZg-QwrD0^?X<yj|Kxpxot2L<Q6=cgKzQsh"
    "wy1dtsT*ZNWM|us!_+EFr8&Q>&h8s(tm#q@Mj(%JW%O-ylXpwBptaOQ6f@1DD%Z!d;Oa91oI(OV*ui;-Aqij~bAYd)"
    "O9uUQ<457LmOVaeyopLoQV^A-vOJ!jXNRIO%*|S^pirixd}oJPjyEeNjDwTy>)GL1W)2Ql_vCb*4t*d5B-9v{0;rL~"
    "hTCR!4ra(a0BoWqmCGj^&JP_gT-kYQM0^U-@6r}SC%cIaJq8FXqAdpevzZ}kL^GJsw@9V)7ik1fPyn@Vs49WL0UJ$y"
    "h`O6(TEY@oO_cPEaAq<~gebj1@k@0RB{L01$WC$1klxSCe3576A*kwMk*S_i&m{l8aYN6)C{7IDN=`DwqiaZBEldKn"
    "6L473Wt@anOap3(o%+3<YVMbnSkU(8*5P@*vyf78MXuO@)F!db*#Jl_Wq=nosa}h)!t1DYBN)&euL#<F%RGWsu#gYj"
    ">YQ@UvP!x-!Dt8nzUFAQK;OEnvvL3DI6sbB_bW93a%gq4k5!jtre^Qw%GR8jAfGyiHtGn{*om5+$OQ=EVmgImq~vn4"
    "G}x!B+y|$MIk_pFQ!C|id7!Im%4-qd)ZW<Td2EknS+;w)e;tDBb$O|la`n2YT#d4NF#-1|<9rEL5*z?LNe5YBa3f;^"
    "LuVfh;S^Nd&o}xL8>zipT#~Aq0wwd=?M&x!%W+0-Ete#7kdhiTn)iTqn~2S%pYNXHb~S}9r}x;ksGXOtcUr_Xmqklo"
    "@)hMf$t+l}IY$~Y+b=g+gxBaE{5wRyV9zQJqx;O(wU@fK?Lh^D0cwqkk#(;w0`0?xB|yLrGjy9JGQ?h#B?vcEyTW)j"
    "`?g~S;_+?6!?pz*-|}jS(qWtp(;@e|Cvm1rbL7>gNg58y<o9@%egT_2Pr_~n=jDE~M73TY6WUjJ92D}cYcu6SpDrSs"
    "mzcjK9o4@c_qw^0`e)}W_{x5RtKH&;Oe(Pez|C`I6SwyfEaSvwPh_$s{<%!UFM$B<L()pA`v-L=x2D}~T@YL=w-R0S"
    "zy#Wn5@h^~nHCB8aZ8b{lPs{Jw>OIhU9aRvK(%7bWi^tsVIM6<el6fPbFv9HEfjoZH4STEEIoU<_GTGOt%ILp7DWgF"
    "KWglO*0M%_5*l8tP2XyiccWcx!dV}<E1<wZVtnbGuNz#EbUXLFr^8q2DLhs5CMe+etgbe+$CPWQ)5!$X!PNG3s!w}j"
    "oJi(&_b?`hmPpe+g=e9tvflFU(=vO5)&7Bm#pbS}&#e=EYOYzs#A4K2YpsO4m~$Yolzh&JVfOqS3m^&qg|cPN5W-tk"
    "i7BoAT2ryO41>E)D<=7duTHReU;XaaWh%lhrg+1$JM$KcCYr|T#AhoV-}#`r8g6TSM-Vjz{-t3*1jfgxur%h4PE@kF"
    "uzdBM0Im6tM3uCfpHNtVM|uE^>?SPst)%b9tM+6olRykp6|_GiS<gB`uKCv>7w!wZi+E(VSrL_MbVx~oAYS~Qs75yF"
    "1Wgq_fneZ?j0^QeiwLGTc_$g1Ok~$U1=gk)Sdr?{MhJvMrBbuYVM<)zba6j_HoC;KIj@HbA>2hLy#eZ#S;sin?;t=u"
    "5``XEn`1T4UjaVRgUnk#CL$!%g~P9+T20~v$g#4NU&<4nR2IFq=S57cWjF+G?XlIc3m<mKCUh9@>M|F|mMAjJ_9=b0"
    "$#?9@K5|;;%BcDwpi=Xit%hZ2Gi8vNVWq*Z6CirIn8bZjz&n|=#HN1zfUxvp>UH2V8T*j6Q=~`EKE<Qm$$(a(cre+`"
    "ff_G#zfxiL@(13UX46-i&4Tq4r~_QPjbqTz*am;sV_3b(__;QLq%ivj)QE9Dinga3PsHMbVK(~op-kP+Gb0eKA%6%x"
    "IbxM2LI3~&yQ`W-ZJu!w00HX@fPf4DI_%$QvBYQl0ssI200dcD"
)


def sas7bdat(packed: str) -> bytes:
    """Return the bytes of a file."""
    return lzma.decompress(b85decode(packed))
