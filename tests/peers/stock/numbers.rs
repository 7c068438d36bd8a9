// As numbers.c: calls to inline, and more live values than there are registers.
fn mix(mut a: u64, b: u64) -> u64 {
    for _ in 0..3 {
        a = a.wrapping_mul(31).wrapping_add(b ^ (a >> 7));
    }
    a
}

macro_rules! pressure {
    ($p:ident, $n:ident, $($x:ident $i:literal)*) => {{
        let mut total = 0;
        $(let mut $x = $p[$i];)*
        for k in 0..$n {
            let mut t: u64 = k as u64;
            $($x = $x.wrapping_mul(3).wrapping_add(t ^ $p[($i + k) & 31]); t = t.wrapping_add($x >> ($i & 7));)*
            if t & 1 == 1 {
                t = mix(t, $p[k & 31]);
            }
            total ^= t;
        }
        total $(.wrapping_add($x))*
    }};
}

#[inline(never)]
fn pressure(p: &[u64; 32], n: usize) -> u64 {
    pressure!(p, n, a 0 b 1 c 2 d 3 e 4 f 5 g 6 h 7 i 8 j 9 l 10 m 11 o 12 q 13 r 14 s 15 u 16 v 17 w 18 x 19)
}

fn main() {
    let n = std::env::args().count() + 6;
    let mut p = [0; 32];
    for (i, x) in p.iter_mut().enumerate() {
        *x = mix(i as u64, n as u64);
    }
    println!("{}", mix(pressure(&p, n), pressure(&p, n + 1)));
}
