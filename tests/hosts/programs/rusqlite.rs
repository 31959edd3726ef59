// Rust's rusqlite: rusqlite MODULE FILE SCENARIO...
use rusqlite::{params_from_iter, types::Value, types::ValueRef, Connection, Error, Result};

fn text(value: ValueRef) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(n) => n.to_string(),
        ValueRef::Text(s) | ValueRef::Blob(s) => String::from_utf8_lossy(s).into_owned(),
    }
}

fn run(db: &Connection, sql: &str) -> Result<()> {
    let bound = if sql.contains("?, ?") {
        vec![
            Value::from("bound".to_string()),
            Value::from("né€😀".to_string()),
            Value::from(vec![0u8, 255]),
            Value::Null,
            Value::from(1760000000000i64),
        ]
    } else {
        vec![]
    };
    let mut statement = db.prepare(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query(params_from_iter(bound))?;
    while let Some(row) = rows.next()? {
        let line: Vec<String> = (0..columns).map(|i| text(row.get_ref(i).unwrap())).collect();
        println!("{}", line.join("|"));
    }
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let db = Connection::open(&args[2])?;
    unsafe {
        db.load_extension_enable()?;
        db.load_extension(&args[1], None)?;
        db.load_extension_disable()?;
    }
    println!("{}", rusqlite::version());
    for scenario in &args[3..] {
        let file = std::fs::read_to_string(scenario).unwrap();
        for sql in file.split("\n\n").filter(|sql| !sql.starts_with("--")) {
            match run(&db, sql) {
                Ok(()) => (),
                Err(Error::SqliteFailure(_, Some(message))) => println!("error: {message}"),
                Err(error) => println!("error: {error}"),
            }
        }
    }
    Ok(())
}
